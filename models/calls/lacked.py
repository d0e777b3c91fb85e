"""Learn which names sessions lack after failures, and how likely what is said must be all that is lacking.

A case is a call that failed and the next call of the tool that worked, with names that the session had not met
(`models.calls.ways_out.cases`). Every name that several agents brought has a logistic model of the words of the failure
(Adagrad, Duchi et al. 2011), all at once; one more column stands for any other name. The least chance is set by cases
whose task the model had not learned: four folds by task, of the newest cases.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fleetlore.calls.context import text_of
from fleetlore.calls.document import Lacked
from fleetlore.calls.lacked import MOST, Vector, failure_features, known_to, most_likely, sigmoid
from fleetlore.fingerprint.fingerprint import argument_shape, is_free_text
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import wilson
from fleetlore.wire.trajectory import Trajectory
from models.calls.ways_out import cases

# Of a tool, the newest.
KEPT_CASES = 2_000
LEAST_CASES = 50
FEATURES = 512
NAMES = 48
# A name that fewer brought may be somebody's own.
LEAST_AGENTS = 2
PASSES = 3
RATE = 0.1
START = 1e-2
FOLDS = 4
JUDGED = 300
# What is said is all that is lacking as often as not, and surely more often than the names that are most often lacking:
# by so much at the lower end of the interval.
LIKELY = 0.5
LIFT = 0.2
LEAST_SAID = 20

# Quoted texts and words with a digit in them may stand for one task or one person only.
_NAME = re.compile(r"(?<!\w)[a-z_]{2,}(?!\w)")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


class Case(NamedTuple):
    """A failure that a session got past. `brought`: names outside of quotes that the call brought which worked."""

    agent: str
    fold: int
    features: dict[int, float]
    known: frozenset[str]
    lacks: frozenset[str]
    brought: frozenset[str]


class LackedTraining:
    """A pass over sessions: `learn` each in order, then ask what is `said` of the tools."""

    def __init__(self) -> None:
        self._cases: defaultdict[str, deque[Case]] = defaultdict(lambda: deque(maxlen=KEPT_CASES))

    def learn(self, session: Trajectory) -> None:
        """Take in a session that ended after those before. Only calls that are free text bring names."""
        for case in cases(session):
            worked = session.calls[case.worked].arguments
            if is_free_text(argument_shape(worked)):
                made = _QUOTED.sub(" ", text_of(worked).lower())
                fold = stable_hash(session.task or session.goal) % FOLDS
                found = failure_features(case.failed.words)
                brought = case.lacks.intersection(_NAME.findall(made))
                kept = Case(session.agent, fold, found, known_to(case.failed), case.lacks, brought)
                self._cases[case.failed.failure.tool].append(kept)

    def said(self) -> tuple[Lacked, ...]:
        """Of each tool that had enough cases; first those of which most is said."""
        enough = ((tool, list(some)) for tool, some in self._cases.items() if len(some) >= LEAST_CASES)
        return tuple(sorted((lacked_of(tool, some) for tool, some in enough), key=lambda each: (-each.said, each.tool)))


def lacked_of(tool: str, cases: Sequence[Case]) -> Lacked:
    """The names of a tool with their weights; without any where they were seldom all that was lacking."""
    names = _names(cases)
    counted = Counter(hash for case in cases for hash in case.features)
    hashes = sorted(counted, key=lambda hash: (-counted[hash], hash))[:FEATURES]
    found: list[tuple[float, bool]] = []
    most_often = 0
    for fold in range(FOLDS):
        fitted = _Weights(names, hashes, [case for case in cases if case.fold != fold])
        for case in cases[-JUDGED:]:
            if case.fold == fold:
                said, chance = fitted.most_likely(case)
                found.append((chance, case.lacks <= set(said)))
                most_often += case.lacks <= set([name for name in names if name not in case.known][:MOST])
    least, right, count = _least(found, most_often / max(1, len(found)))
    if not count:
        return Lacked(tool, (), b"", b"", b"\0\0", b"\0\0", least, 0, 0)
    features, weights, scales, biases = _Weights(names, hashes, cases).packed()
    return Lacked(tool, names, features, weights, scales, biases, least, right, count)


def _names(cases: Iterable[Case]) -> tuple[str, ...]:
    """Those that were lacking most often."""
    counts: Counter[str] = Counter()
    agents: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        counts.update(case.brought)
        for name in case.brought:
            agents[name].add(case.agent)
    often = sorted((-count, name) for name, count in counts.items() if len(agents[name]) >= LEAST_AGENTS)
    return tuple([name for _, name in often[:NAMES]])


class _Weights:
    """Float32 (features, names + 1), fitted to cases."""

    def __init__(self, names: tuple[str, ...], hashes: Sequence[int], cases: Iterable[Case]) -> None:
        self._names = names
        self._hashes = hashes
        self._rows = {hash: row for row, hash in enumerate(hashes)}
        self._columns = {name: column for column, name in enumerate(names)}
        size = len(names) + 1
        self._weights = np.zeros((len(hashes), size), np.float32)
        self._biases = np.zeros(size, np.float32)
        squares = np.full_like(self._weights, START)
        bias_squares = np.ones(size, np.float32)
        prepared = [(*self._at(case), self._lacks(case), self._may_lack(case)) for case in cases]
        chance = random.Random(0)
        for _ in range(PASSES):
            chance.shuffle(prepared)
            for rows, values, lacks, may_lack in prepared:
                slopes = (self._chances(rows, values) - lacks) * may_lack
                gradient = values[:, None] * slopes
                squares[rows] += gradient * gradient
                self._weights[rows] -= RATE * gradient / np.sqrt(squares[rows])
                bias_squares += slopes * slopes
                self._biases -= RATE * slopes / np.sqrt(bias_squares)

    def most_likely(self, case: Case) -> tuple[tuple[str, ...], float]:
        """The names that are said, and the chance that they are all that is lacking."""
        return most_likely(self._names, self._chances(*self._at(case)), case.known)

    def packed(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Features, weights, scales and biases, as `Lacked` holds them."""
        scales = (np.abs(self._weights).max(axis=0, initial=0.0) / 127).astype("<f2")
        divisors = np.where(scales > 0, scales, np.float16(1)).astype(np.float32)
        weights = np.clip(np.rint(self._weights / divisors), -127, 127).astype(np.int8)
        features = np.array(self._hashes, "<u4")
        return features.tobytes(), weights.tobytes(), scales.tobytes(), self._biases.astype("<f2").tobytes()

    def _at(self, case: Case) -> tuple[list[int], Vector]:
        found = {row: value for hash, value in case.features.items() if (row := self._rows.get(hash)) is not None}
        return list(found), np.array(list(found.values()), np.float32)

    def _chances(self, rows: list[int], values: Vector) -> Vector:
        return sigmoid(values @ self._weights[rows] + self._biases)

    def _lacks(self, case: Case) -> Vector:
        found = np.zeros(len(self._names) + 1, np.float32)
        found[[self._columns.get(name, -1) for name in case.lacks]] = 1.0
        return found

    def _may_lack(self, case: Case) -> Vector:
        return np.array([*(name not in case.known for name in self._names), True], np.float32)


def _least(found: Collection[tuple[float, bool]], base: float) -> tuple[float, int, int]:
    """(least chance from which what is said is right often enough, how many of those were right, how many were said).

    Above 1 where there is none: then nothing is said.
    """
    right, best = 0, (2.0, 0, 0)
    ordered = sorted(found, key=lambda each: -each[0])
    for count, (chance, is_right) in enumerate(ordered, 1):
        right += is_right
        if count < len(ordered) and ordered[count][0] == chance:
            continue
        if count >= LEAST_SAID and right >= LIKELY * count and wilson(right, count)[0] >= base + LIFT:
            best = (chance, right, count)
    return best
