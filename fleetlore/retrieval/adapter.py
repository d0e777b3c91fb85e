"""Hold a version of the retrieval adapter, a LoRA over the static encoder, and rank resolutions with it.

The adapter maps a failed call close to what resolved similar failures of *other* agents: `x + scale * B @ A @ x`, with
one pair `A`, `B` for queries and one for answers. A ranking adds a tf-idf cosine to the learned one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fleetlore.adapters.slot import SharedSlot
from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import Encoder, Vectors, shared_encoder
from fleetlore.stats.text_index import TextIndex
from fleetlore.wire.adapter_manifest import Probe, RetrievalManifest

__all__ = [
    "SIDES", "Ranking", "RetrievalAdapter", "RetrievalSlot", "answer_text", "probe_answers", "query_text",
    "tensor_shapes",
]  # fmt: skip

SIDES: Final = ("query", "answer")
MAX_RANK = 256
PROBE_TEXTS = 8
PROBE_TOLERANCE = 1e-3
# An adapter with a smaller effect changes nothing.
NO_CHANGE = 1e-6
# Weight of the learned cosine; the best text by words counts 1.
LEARNED_WEIGHT = 2.0
_ERROR_CHARACTERS = 250
_CALL_CHARACTERS = 400
_FIX_CHARACTERS = 400
_GOAL_CHARACTERS = 150

Floats = npt.NDArray[np.float64]


def tensor_shapes(rank: int, dimensions: int) -> dict[str, tuple[int, int]]:
    shapes: dict[str, tuple[int, int]] = {}
    for side in SIDES:
        shapes[f"{side}.lora_A.weight"] = (rank, dimensions)
        shapes[f"{side}.lora_B.weight"] = (dimensions, rank)
    return shapes


class RetrievalAdapter:
    def __init__(self, weights: bytes, rank: int, scale: float, dimensions: int) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(weights)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise AdapterRefused("malformed", f"no safetensors: {error}") from error
        shapes = tensor_shapes(rank, dimensions)
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise AdapterRefused("structure", f"not the tensors of rank {rank} over {dimensions} dimensions")
        if any(tensor.dtype != np.float32 for tensor in tensors.values()):
            raise AdapterRefused("structure", "its tensors are not of float32")
        if not all(bool(np.isfinite(tensor).all()) for tensor in tensors.values()):
            raise AdapterRefused("not_finite", "its weights are not all finite")
        self._down = {side: tensors[f"{side}.lora_A.weight"].T for side in SIDES}
        self._up = {side: np.float32(scale) * tensors[f"{side}.lora_B.weight"].T for side in SIDES}

    def turned(self, side: str, vectors: Vectors) -> Vectors:
        """Map vectors (n, d) of queries or answers into the adapter's space, rows of length 1; a zero row stays
        zero."""
        moved = vectors + (vectors @ self._down[side]) @ self._up[side]
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        turned: Vectors = moved / np.where(lengths > 0, lengths, np.float32(1))
        return turned

    def cosines(self, query: Vectors, answers: Vectors) -> npt.NDArray[np.float64]:
        """Return the cosine of a query (d,) with each answer (n, d): (n,)."""
        found: npt.NDArray[np.float64] = (self.turned("answer", answers) @ self.turned("query", query[None])[0]).astype(
            np.float64
        )
        return found


def probe_answers(adapter: RetrievalAdapter, seed: int, dimensions: int) -> tuple[float, ...]:
    """Return an adapter's answers to seeded random vectors."""
    rows = _probe_rows(seed, dimensions)
    return tuple(adapter.cosines(rows[0], rows[1:]).tolist())


def _probe_rows(seed: int, dimensions: int) -> Vectors:
    # docs/reference/adapters.md describes it for other languages.
    rows = np.random.RandomState(seed).standard_normal((1 + PROBE_TEXTS, dimensions)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


class RetrievalSlot(SharedSlot[RetrievalAdapter]):
    """Runs one version at a time. Raises ModelUnavailable without the extra `[adapters]`."""

    kind = RetrievalManifest

    def __init__(self) -> None:
        super().__init__()
        self.encoder: Encoder = shared_encoder()

    def key(self, manifest: RetrievalManifest) -> Hashable:
        # The probe is included, because a manifest with another one must be refused.
        return manifest.version, manifest.encoder_sha256, manifest.rank, manifest.alpha, manifest.probe

    def read(self, weights: bytes, manifest: RetrievalManifest) -> RetrievalAdapter:
        """Raises AdapterRefused: `foreign`, `malformed`, `structure`, `not_finite` or `probe`."""
        if manifest.encoder_sha256 != self.encoder.sha256:
            raise AdapterRefused("foreign", f"made for another encoder ({manifest.encoder[:100]})")
        if not 1 <= manifest.rank <= MAX_RANK:
            raise AdapterRefused("structure", f"rank {manifest.rank}")
        adapter = RetrievalAdapter(weights, manifest.rank, manifest.scale, self.encoder.dimensions)
        _check_probe(adapter, manifest.probe, self.encoder.dimensions)
        return adapter


def _check_probe(adapter: RetrievalAdapter, probe: Probe, dimensions: int) -> None:
    answers, expected = np.array(probe_answers(adapter, probe.seed, dimensions)), np.array(probe.expected)
    if answers.shape != expected.shape or not bool((np.abs(answers - expected) <= PROBE_TOLERANCE).all()):
        raise AdapterRefused("probe", "the adapter does not answer as its manifest says")
    # An adapter without effect has lost or swapped tensors.
    rows = _probe_rows(probe.seed, dimensions)
    if bool((np.abs(answers - rows[1:] @ rows[0]) <= NO_CHANGE).all()):
        raise AdapterRefused("probe", "the adapter changes nothing")


def query_text(error: str, call: str, goal: str) -> str:
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {goal[:_GOAL_CHARACTERS]}"


def answer_text(error: str, call: str, fix: str) -> str:
    """Return the text of a resolution: a failed call and the call that worked after it."""
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {fix[:_FIX_CHARACTERS]}"


class Ranking:
    """Texts of resolutions that can be ranked for several queries."""

    def __init__(self, texts: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self._count = len(texts)
        self._vectors = encoder.encode(texts)
        self._index = TextIndex()
        for place, text in enumerate(texts):
            self._index.put(str(place), text)

    def by_words(self, query: str) -> Floats:
        """Return the tf-idf cosine of each text relative to the best: (n,), 0..1."""
        found = np.zeros(self._count)
        for id, likeness in self._index.likeness(query).items():
            found[int(id)] = likeness
        return found

    def scores(self, query: str, adapter: RetrievalAdapter) -> Floats:
        """Return scores by words and adapter together: (n,), higher is better."""
        return self.by_words(query) + LEARNED_WEIGHT * adapter.cosines(self._encoder.encode([query])[0], self._vectors)
