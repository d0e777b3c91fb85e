"""The static text encoder that agents and the trainer share.

WordLlama (MIT) keeps its 256-d token table inside the wheel, so encoding needs no download, no torch and ~0.03 ms
a text. The files are read directly: importing `wordllama` configures the root logger, and its loader looks for the
tokenizer in a folder that the wheel does not have and would then go to the network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fleetlore.errors import ModelUnavailable

MAX_CHARACTERS = 1000
CACHED_TEXTS = 8192
FEW_TEXTS = 16

Vectors = npt.NDArray[np.float32]


class StaticEncoder:
    """Mean of static token vectors, L2-normalised. One text gives the same bits in any batch.

    Source: WordLlama, `l2_supercat_256` (token embeddings of a Llama 2 vocabulary, trained for similarity).
    Raises ModelUnavailable when the `[policy]` extra is not installed.
    """

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def __init__(self) -> None:
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelUnavailable("the encoder needs: pip install 'fleetlore[policy]'") from error
        self._files = _model_files()
        weights, tokenizer = self._files
        self._table = load_file(weights)["embedding.weight"]
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        # A blocking facade scores from the caller's thread while its loop thread encodes.
        self._lock = threading.Lock()

    @cached_property
    def sha256(self) -> str:
        """Hex digest over the weights and the tokenizer: either one decides what a vector means."""
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of `texts`: float32 (n, 256), rows of length 1; an empty text is the zero row."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        with self._lock:
            missing = list(dict.fromkeys(text for text in texts if text not in self._cache))
            fresh = dict(zip(missing, self._embed(missing), strict=True))
            for index, text in enumerate(texts):
                if text in fresh:
                    rows[index] = fresh[text]
                else:
                    rows[index] = self._cache[text]
                    self._cache.move_to_end(text)
            self._cache.update(fresh)
            while len(self._cache) > CACHED_TEXTS:
                self._cache.popitem(last=False)
        return rows

    def _embed(self, texts: list[str]) -> list[Vectors]:
        # The tokenizer takes UTF-8 only; a tool's output may hold half of a surrogate pair.
        clean = [text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() for text in texts]
        if len(clean) <= FEW_TEXTS:  # waking the tokenizer's threads takes longer than so few texts
            return [self._pool(self._tokenizer.encode(text, add_special_tokens=False).ids) for text in clean]
        encodings = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [self._pool(encoding.ids) for encoding in encodings]

    def _pool(self, ids: list[int]) -> Vectors:
        # The mean of no token is 0/0: one empty text would turn a whole training run into NaN.
        if not ids:
            return np.zeros(self.dimensions, dtype=np.float32)
        # The same bits as `mean` and `linalg.norm`, which take as long as all the rest for a short text.
        mean: Vectors = np.add.reduce(self._table.take(ids, axis=0, mode="clip").astype(np.float32), axis=0)
        mean /= np.float32(len(ids))
        norm = np.sqrt(mean @ mean)
        if norm > 0:
            mean /= norm
        return mean


def shared_encoder() -> StaticEncoder:
    """One encoder for the process: its table is 16 MB and its cache grows better when shared."""
    with _SHARING:  # many agents of one process start at once, each on a thread
        return _shared_encoder()


_SHARING = threading.Lock()
_shared_encoder = lru_cache(maxsize=1)(StaticEncoder)


def _model_files() -> tuple[Path, Path]:
    spec = importlib.util.find_spec("wordllama")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    weights = folder / "weights" / "l2_supercat_256.safetensors"
    tokenizer = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    if not (spec and weights.is_file() and tokenizer.is_file()):
        raise ModelUnavailable("the encoder's weights are missing: pip install 'fleetlore[policy]'")
    return weights, tokenizer
