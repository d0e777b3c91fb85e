"""Learn weights of hashed features online by Adagrad (Duchi et al. 2011): one pass, no dictionary of features."""

from __future__ import annotations

from math import sqrt

import numpy as np
import numpy.typing as npt

from fleetlore.calls.document import CALL_BITS, KIND_BITS, MAX_KINDS
from fleetlore.calls.features import Features
from fleetlore.calls.model import KindScores, call_cells, failure_chance, kind_cells
from models.calls.evidence import Evidence, Fleet, Who

_RATE = np.float32(0.1)
# Decay of the squared gradients at each call, so that the model can still learn when the world changes.
_DECAY = np.float32(0.999)
# Kinds are rare and do not decay.
_KEEP = np.float32(1.0)
_START = 1e-2


class _HashedWeights:
    def __init__(self, bits: int) -> None:
        self.weights = np.zeros(2**bits, np.float32)
        self._squares = np.full(2**bits, _START, np.float32)

    def _step(self, cells: npt.NDArray[np.uint32], gradient: npt.NDArray[np.float32], decay: np.float32) -> None:
        squares = self._squares[cells] * decay + gradient * gradient
        self._squares[cells] = squares
        self.weights[cells] -= _RATE * gradient / np.sqrt(squares)


class CallWeights(_HashedWeights):
    """P(a call fails). `bias`: of all calls."""

    def __init__(self) -> None:
        super().__init__(CALL_BITS)
        self.bias = 0.0
        self._bias_square = 1.0

    def fails(self, found: Features) -> float:
        return failure_chance(self.weights, self.bias, found)

    def learn(self, found: Features, failed: bool, weight: float = 1.0) -> None:
        """Step towards how the call ended. `weight`: 0..1."""
        slope = weight * (self.fails(found) - failed)
        self._step(call_cells(found), np.float32(slope) * found.values, _DECAY)
        self._bias_square += slope * slope
        self.bias -= float(_RATE) * slope / sqrt(self._bias_square)


class KindWeights(_HashedWeights):
    """P(kind of failure | the call fails), over the first `MAX_KINDS` kinds that came three times."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(KIND_BITS)
        self._fleet = fleet
        self.kinds: dict[tuple[str, str], int] = {}
        self.counts: list[int] = []
        self._came: dict[tuple[str, str], int] = {}
        self.met: dict[tuple[str, str], Evidence] = {}

    def learn(self, found: Features, kind: tuple[str, str], who: Who) -> None:
        number = self.kinds.get(kind)
        self.met.setdefault(kind, Evidence(self._fleet)).add(who)
        if number is None:
            came = self._came[kind] = self._came.get(kind, 0) + 1
            if came < 3 or len(self.kinds) >= MAX_KINDS:
                return
            number = self.kinds[kind] = len(self.kinds)
            self.counts.append(0)
        self.counts[number] += 1
        slopes = KindScores(self.weights, self.counts).chances(found)
        slopes[number] -= 1.0
        gradient = found.values[: found.of_kind, None] * slopes[None, :]
        self._step(kind_cells(found, len(self.counts)), gradient, _KEEP)
