"""Predict after a failure which names a session lacks: those that calls brought which got others past failures like it.

For each tool with enough failures that sessions got past, the fleet learns a logistic model of every name from the
words of goal, call and error (`models.calls.lacked`). A few names are said, most likely first, and how likely they hold
all that is lacking: that some of them are lacking, and none of the others.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from fleetlore.calls.context import CALL_CHARACTERS, RESULT_CHARACTERS, hash_of, words_of
from fleetlore.calls.document import Lacked
from fleetlore.calls.failed_call import FailedCall, FailureWords

MOST = 6
# A name that fewer sessions lacked after such a failure only fills the line.
LEAST_NAME = 0.05
# What the words of each part of a failure weigh together.
_PARTS = (("goal", 1.0), ("call", 1.0), ("error", 1.5), ("names", 2.0), ("kind", 1.5))

Vector = npt.NDArray[np.float32]


def failure_features(failed: FailureWords) -> dict[int, float]:
    """Value by hash of each feature of a failure; of each part the squares sum up to its weight's."""
    found: dict[int, float] = {}
    for (part, weight), words in zip(_PARTS, (*failed[:-1], (failed.kind,)), strict=True):
        salt, value = hash_of(part), weight / (len(words) or 1) ** 0.5
        for word in words:
            found[word ^ salt] = value
    return found


def known_to(failed: FailedCall) -> frozenset[str]:
    """Names that the session has met: in its goal, in its calls and in what these brought."""
    read = words_of(failed.goal, CALL_CHARACTERS), words_of(failed.text, CALL_CHARACTERS)
    return frozenset(chain(failed.seen, *read, words_of(failed.error, RESULT_CHARACTERS)))


def most_likely(names: tuple[str, ...], chances: Vector, known: frozenset[str]) -> tuple[tuple[str, ...], float]:
    """The few names that are lacking most likely, and the chance that they are all that is lacking.

    Args:
        chances: float32 (names + 1,), each name's; last that of a name which is none of these.
        known: names that cannot be lacking.
    """
    order = [place for place in np.argsort(-chances[:-1], kind="stable").tolist() if names[place] not in known]
    absent = 1.0 - chances.astype(np.float64)
    some = [place for place in order[:MOST] if chances[place] >= LEAST_NAME]
    others = order[len(some) :]
    chance = (1.0 - np.prod(absent[some])) * np.prod(absent[others]) * absent[-1]
    return tuple(names[place] for place in some), round(float(chance), 9)


def sigmoid(scores: Vector) -> Vector:
    return (1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0)))).astype(np.float32)


class LackedNames:
    """What a version knows of a tool.

    Attributes:
        least: chance from which names are said.
        right, said: of the failures of held-out tasks with that chance, and in how many nothing else was lacking.

    Raises:
        ValueError: the parts of the document do not fit each other.
    """

    def __init__(self, of: Lacked) -> None:
        columns = len(of.names) + 1
        hashes, weights = np.frombuffer(of.features, "<u4"), np.frombuffer(of.weights, np.int8)
        scales, biases = np.frombuffer(of.scales, "<f2"), np.frombuffer(of.biases, "<f2")
        if (len(weights), len(scales), len(biases)) != (len(hashes) * columns, columns, columns):
            raise ValueError(f"{len(weights)} weights for {len(hashes)} features of {columns} names")
        if not (np.isfinite(scales).all() and np.isfinite(biases).all()):
            raise ValueError("a scale or a bias is no number")
        self._names = of.names
        self._rows = {hash: row for row, hash in enumerate(hashes.tolist())}
        self._weights = weights.reshape(-1, columns).astype(np.float32) * scales.astype(np.float32)
        self._biases = biases.astype(np.float32)
        self.least, self.right, self.said = of.least, of.right, of.said

    def most_likely(self, failed: FailedCall) -> tuple[tuple[str, ...], float]:
        """At most 6 names that the session has not met, and the chance that they are all that it lacks, 0..1."""
        found = [
            (row, value)
            for hash, value in failure_features(failed.words).items()
            if (row := self._rows.get(hash)) is not None
        ]
        values = np.array([value for _, value in found], np.float32)
        scores = values @ self._weights[[row for row, _ in found]] + self._biases
        return most_likely(self._names, sigmoid(scores), known_to(failed))
