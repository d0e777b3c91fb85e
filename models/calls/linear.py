"""Learn weights of hashed features online by Adagrad (Duchi et al. 2011): one pass, no dictionary of features."""

from __future__ import annotations

from math import sqrt

import numpy as np

from fleetlore.calls.document import CALL_BITS, KIND_BITS, MAX_KINDS
from fleetlore.calls.features import Features
from fleetlore.calls.model import KindScores, kind_cells, sigmoid
from models.calls.evidence import Evidence, Fleet, Who

RATE = np.float32(0.1)
# Of the squared gradients, a call: old ones are forgotten, so that the model can still learn when the world changes.
DECAY = np.float32(0.999)
START = 1e-2

_MASK = np.uint32(2**CALL_BITS - 1)


class CallWeights:
    """P(a call fails).

    Attributes:
        weights: float32 (2 ** 17,); bias: of all calls.
    """

    def __init__(self) -> None:
        self.weights = np.zeros(2**CALL_BITS, np.float32)
        self.bias = 0.0
        self._squares = np.full(2**CALL_BITS, START, np.float32)
        self._bias_square = 1.0

    def fails(self, found: Features) -> float:
        """P(the call fails), 0..1."""
        return sigmoid(self._score(found))

    def learn(self, found: Features, failed: bool) -> None:
        """Step towards how the call ended."""
        slope = self.fails(found) - failed
        self._step(found, np.float32(slope) * found.values)
        self._bias_square += slope * slope
        self.bias -= float(RATE) * slope / sqrt(self._bias_square)

    def _score(self, found: Features) -> float:
        return float(self.weights[found.ids & _MASK] @ found.values) + self.bias

    def _step(self, found: Features, gradient: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
        cells = found.ids & _MASK
        squares = self._squares[cells] * DECAY + gradient * gradient
        self._squares[cells] = squares
        self.weights[cells] -= RATE * gradient / np.sqrt(squares)


class KindWeights:
    """P(kind of failure | the call fails), over the first `MAX_KINDS` kinds that came three times.

    Attributes:
        kinds: (tool, text) of each.
        counts: how often each came since; `met`: who met each text.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.kinds: dict[tuple[str, str], int] = {}
        self.counts: list[int] = []
        self.weights = np.zeros(2**KIND_BITS, np.float32)
        self._squares = np.full(2**KIND_BITS, START, np.float32)
        self._came: dict[tuple[str, str], int] = {}
        self.met: dict[tuple[str, str], Evidence] = {}

    def learn(self, found: Features, kind: tuple[str, str], who: Who) -> None:
        """Step towards the kind that it was."""
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
        cells = kind_cells(found, len(self.counts))
        squares = self._squares[cells] + gradient * gradient
        self._squares[cells] = squares
        self.weights[cells] -= RATE * gradient / np.sqrt(squares)
