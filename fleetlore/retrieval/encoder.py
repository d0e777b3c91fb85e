"""Encode texts as static vectors, equal for agents and trainer.

WordLlama's 256-d token table (MIT) comes in the data wheel `fleetlore-encoder`. Encoding needs no download and no
torch, and takes about 0.02 ms a text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleetlore.errors import ModelUnavailable

_MAX_CHARACTERS = 1000
# LRU sizes: texts with their vectors, and words with their token sums of 1 kB.
CACHED_TEXTS, CACHED_WORDS = 8192, 8192
# No token of the vocabulary has a space after a letter, or a digit beside another character. So words with their
# leading spaces, and single digits, tokenize as the whole text does.
_WORDS = re.compile("▁*[^▁0-9]+|[0-9]|▁+")

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Encodes texts as vectors. Two encoders' vectors cannot be compared, so they are stored with name and hash.
    `name`: name of the model. `sha256`: hex digest of everything that defines a vector's meaning. `dimensions`: length
    of a vector."""

    name: str
    dimensions: int

    @property
    def sha256(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return vectors: float32 (n, dimensions), rows of length 1; an empty text is a zero row."""
        ...


class StaticEncoder:
    """Mean of static token vectors, L2-normalised. A text gives the same bits in any batch. Source: WordLlama,
    `l2_supercat_256` (token embeddings of a Llama 2 vocabulary, trained for similarity). Raises ModelUnavailable: the
    extra `[adapters]` is not installed."""

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def __init__(self) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelUnavailable(
                "the encoder needs: pip install 'fleetlore[adapters]' or 'fleetlore[recall]'"
            ) from error
        self._files = _model_files()
        weights, tokens = self._files
        self._table = _mapped(weights)
        tokenizer = Tokenizer.from_file(str(tokens))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        # Tokenizing takes most of the time, so it is done and cached by word.
        self._model = tokenizer.model
        self._special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._words: dict[str, int] = {"": 0}
        # Their words always fit the cache: a word other than a digit has two characters with its separator.
        self._texts_at_once = 2 * CACHED_WORDS // _MAX_CHARACTERS
        # sum of a word's token vectors, and their number
        self._sums = np.zeros((CACHED_WORDS, self.dimensions + 1), dtype=np.float32)
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        # A blocking facade encodes on the caller's thread while its loop thread does too.
        self._lock = threading.Lock()

    @cached_property
    def sha256(self) -> str:
        """Hex digest of weights and tokenizer, which both define a vector's meaning."""
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return vectors: float32 (n, 256), rows of length 1; an empty text is a zero row."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        with self._lock:
            missing = list(dict.fromkeys(text for text in texts if text not in self._cache))
            fresh: dict[str, Vectors] = {}
            for first in range(0, len(missing), self._texts_at_once):
                some = missing[first : first + self._texts_at_once]
                fresh.update(zip(some, self._embed(some), strict=True))
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

    def _embed(self, texts: list[str]) -> Vectors:
        # The tokenizer requires UTF-8; a tool's output may hold lone surrogates.
        words = [self._split(text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode()) for text in texts]
        self._learn({word for some in words for word in some})
        totals = _sums([[self._words[word] for word in some] for some in words], self._sums)
        # An empty text would be 0/0, and one NaN would spoil a whole training run.
        means: Vectors = np.divide(totals[:, :-1], np.maximum(totals[:, -1:], 1))
        lengths = np.sqrt(np.einsum("ij,ij->i", means, means))
        means /= np.where(lengths > 0, lengths, np.float32(1))[:, None]
        return means

    def _split(self, text: str) -> list[str]:
        """Split a text into words that tokenize like the whole; at least one, possibly empty."""
        if any(special in text for special in self._special):
            return [text]
        return (_WORDS.findall("▁" + text.replace(" ", "▁")) if text else []) or [""]

    def _learn(self, words: set[str]) -> None:
        known = self._words
        new = sorted(words - known.keys())
        if len(known) + len(new) > len(self._sums):
            known.clear()
            known[""] = 0
            new = sorted(words - known.keys())
        if new:
            ids = [self._ids(word) for word in new]
            first = len(known)
            self._sums[first : first + len(new), :-1] = _sums(ids, self._table)
            self._sums[first : first + len(new), -1] = [len(some) for some in ids]
            known.update(zip(new, range(first, first + len(new)), strict=True))

    def _ids(self, word: str) -> list[int]:
        if any(special in word for special in self._special):
            ids: list[int] = self._tokenizer.encode(word, add_special_tokens=False).ids
            return ids
        return [token.id for token in self._model.tokenize(word)]


def _mapped(weights: Path) -> npt.NDArray[np.float16]:
    """Memory-map the 16 MB table (safetensors), so that only used rows are loaded."""
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(length))["embedding.weight"]
    place = 8 + length + about["data_offsets"][0]
    return np.asarray(np.memmap(weights, np.float16, "r", place, tuple(about["shape"])))


def _sums(rows: list[list[int]], table: Vectors | npt.NDArray[np.float16]) -> Vectors:
    """Return the sum of each list's rows: the same bits in any batch."""
    taken = table.take([row for some in rows for row in some], axis=0, mode="clip").astype(np.float32, copy=False)
    sums = np.empty((len(rows), table.shape[1]), dtype=np.float32)
    first = 0
    for place, some in enumerate(rows):  # numpy's reduceat is slower
        np.add.reduce(taken[first : first + len(some)], axis=0, out=sums[place])
        first += len(some)
    return sums


def shared_encoder() -> StaticEncoder:
    """Return the process' encoder: the tokenizer takes 20 MB, and all agents share its cache."""
    with _SHARING:  # many agents start at once, each on a thread
        return _shared_encoder()


_SHARING = threading.Lock()
_shared_encoder = lru_cache(maxsize=1)(StaticEncoder)


def _model_files() -> tuple[Path, Path]:
    spec = importlib.util.find_spec("fleetlore_encoder")
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            "the encoder's weights are missing: pip install 'fleetlore[adapters]' or 'fleetlore[recall]'"
        )
    folder = Path(spec.origin).parent
    return folder / "table.safetensors", folder / "tokenizer.json"
