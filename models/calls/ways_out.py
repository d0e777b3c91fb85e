"""Learn from the fleet's log how ways out of failures are ranked, and how sure one must be to be said.

A case is a call that failed and the next call of the tool that worked, with words that the session had not seen. Before
the session is learned, the ways out of the sessions before it are ranked for it: one that brings all these words is
right, the others are wrong. The weights are a logistic regression over all cases of a tool. The least chance is set by
the newest cases, ranked as an agent would rank them now: with all that is known but the session's own, by weights that
were fitted to other sessions.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.calls.context import CALL_CHARACTERS, KEYWORDS, RESULT_CHARACTERS, text_of, words_of
from fleetlore.calls.document import Ranking
from fleetlore.calls.likeness import FailureWords
from fleetlore.calls.nearest import Example, NearestRecoveries
from fleetlore.calls.ranker import PRIOR, FailedCall, figures
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.ways_out import CANDIDATES, is_own, masked
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import wilson
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.memory.item_state import ItemState

Vector = npt.NDArray[np.float64]

# Of a tool, the newest.
KEPT_CASES = 2_000
LEAST_CASES = 50
# Weights stay this near to the prior (variance, on figures of unit variance) until cases move them.
VARIANCE = 0.3
BIAS_VARIANCE = 4.0
FOLDS = 4
# By which ways out that are said are right more often than the nearest one is, at the lower end of the interval; or
# they are surely right as often as not.
LIFT = 0.2
LIKELY = 0.5
# The newest cases of a tool, by which the least chance is set.
JUDGED = 300
_ROUNDS = 30


class Case(NamedTuple):
    """A failure that a session got past.

    Attributes:
        failed: as the agent asks about it.
        place, worked: of the call that failed and of the one that worked, among the session's calls.
        lacks: words of that call that the session had not seen.
    """

    failed: FailedCall
    place: int
    worked: int
    lacks: frozenset[str]


class Ranked(NamedTuple):
    """Figures of the candidates for a case: float64 (n, 13); and whether each is right: bool (n,)."""

    session: str
    figures: Vector
    right: npt.NDArray[np.bool_]


def _got_past(failed: Step, call: Step) -> bool:
    return call.tool == failed.tool and not call.failed


def cases(session: Trajectory, got_past: Callable[[Step, Step], bool] = _got_past) -> Iterator[Case]:
    """The ways out of a session, each after the first failure that led to it.

    Args:
        got_past: whether a later call got past a failed one.
    """
    calls, taken = session.calls, set[int]()
    seen = words_of(session.goal, CALL_CHARACTERS)
    for place, step in enumerate(calls):
        made, said = text_of(step.arguments), said_by(step)
        known = words_of(made, CALL_CHARACTERS) | words_of(said, RESULT_CHARACTERS)
        if step.failed and not step.transient:
            later = next((other for other in range(place + 1, len(calls)) if got_past(step, calls[other])), None)
            if later is not None and later not in taken:
                taken.add(later)
                lacks = words_of(text_of(calls[later].arguments), CALL_CHARACTERS) - seen - known - KEYWORDS
                failure = failure_of(step.tool, step.arguments, step.error_type, step.error_message)
                if lacks:
                    failed = FailedCall(made, said, failure, session.goal, session.session, frozenset(seen))
                    yield Case(failed, place, later, frozenset(lacks))
        seen |= known


def said_by(step: Step) -> str:
    """What the environment said to a call."""
    return step.error_message or step.error_type or "" if step.failed else step.result


class WaysOutTraining:
    """A pass over sessions: `learn` each in order, then ask for the `rankings`."""

    def __init__(self) -> None:
        self._judges = JudgeChain()
        self._states: defaultdict[str, ItemState] = defaultdict(ItemState)
        self._nearest: defaultdict[str, NearestRecoveries] = defaultdict(NearestRecoveries)
        self._ranked: defaultdict[str, deque[Ranked]] = defaultdict(lambda: deque(maxlen=KEPT_CASES))
        self._newest: defaultdict[str, deque[Case]] = defaultdict(lambda: deque(maxlen=JUDGED))

    def learn(self, session: Trajectory) -> None:
        """Take in a session that ended after those before."""
        for case in cases(session):
            self._ranked[case.failed.failure.tool].append(self._rank(case))
            self._newest[case.failed.failure.tool].append(case)
        if any(call.failed for call in session.calls):
            judged = Judgment(trajectory=session.digest(), verdict=self._judges.judge(session))
            for candidate in distil(judged):
                if candidate.kind == "recovery" and candidate.near:
                    state = self._states[candidate.item_id]
                    state.merge(candidate)
                    item = state.to_item()
                    if item is not None:
                        self._nearest[item.tool].put(item)

    def rankings(self) -> tuple[Ranking, ...]:
        """Of each tool that had enough cases."""
        return tuple(
            ranking_of(tool, ranked, map(self._rank, self._newest[tool]))
            for tool, ranked in sorted(self._ranked.items())
            if len(ranked) >= LEAST_CASES
        )

    def _rank(self, case: Case) -> Ranked:
        failed = case.failed
        asked = failed.words
        near = self._nearest[failed.failure.tool].near(asked, CANDIDATES)
        found = np.array(figures(near, asked, failed), np.float64).reshape(-1, len(PRIOR.weights))
        others = [place for place, each in enumerate(near.examples) if not _is_own(each, asked, failed.session)]
        right = [
            case.lacks <= words_of(masked(near.examples[place].change, failed), CALL_CHARACTERS) for place in others
        ]
        return Ranked(failed.session, found[others], np.array(right, np.bool_))


def _is_own(example: Example, asked: FailureWords, session: str) -> bool:
    """Whether the session itself taught it: the whole item, or this failure of an item that others back too."""
    item = example.item
    return is_own(item, session) or (
        example.words == asked and any(each.partition("#")[0] == session for each in item.sessions)
    )


def ranking_of(tool: str, learned: Iterable[Ranked], judged: Iterable[Ranked]) -> Ranking:
    """Weights of cases as they were learned, and the least chance of cases as they are ranked now."""
    cases = list(learned)
    by_fold = [fitted([each for each in cases if _fold(each) != fold]) for fold in range(FOLDS)]
    said: list[tuple[float, bool]] = []
    nearest = 0
    for each in judged:
        if len(each.figures):
            bias, weights = by_fold[_fold(each)]
            scores = np.round(bias + each.figures @ weights, 9)
            best = int(np.argmax(scores))
            said.append((float(_sigmoid(scores[best : best + 1])[0]), bool(each.right[best])))
            nearest += bool(each.right[0])
    least, right, count = _least(said, nearest / max(1, len(said)))
    bias, weights = fitted(cases)
    return Ranking(tool, round(bias, 6), tuple(round(float(each), 6) for each in weights), least, right, count)


def _fold(ranked: Ranked) -> int:
    return stable_hash(ranked.session) % FOLDS


def fitted(cases: Sequence[Ranked]) -> tuple[float, Vector]:
    """Logistic regression by Newton's method: (bias, weights) of the figures as they are, drawn towards the prior."""
    prior = np.array(PRIOR.weights)
    of = np.concatenate([each.figures for each in cases]) if cases else np.zeros((0, len(prior)))
    if not len(of):
        return PRIOR.bias, prior
    right = np.concatenate([each.right for each in cases]).astype(np.float64)
    mean, spread = of.mean(axis=0), of.std(axis=0) + 1e-3
    design = np.column_stack([np.ones(len(of)), (of - mean) / spread])
    start = np.concatenate([[PRIOR.bias + mean @ prior], prior * spread])
    ridge = np.diag([1.0 / BIAS_VARIANCE, *[1.0 / VARIANCE] * of.shape[1]])
    found = start.copy()
    for _ in range(_ROUNDS):
        chances = _sigmoid(design @ found)
        slope = design.T @ (chances - right) + ridge @ (found - start)
        curve = (design * (chances * (1.0 - chances))[:, None]).T @ design + ridge
        step = np.linalg.solve(curve, slope)
        found -= step
        if np.abs(step).max() < 1e-9:
            break
    weights: Vector = found[1:] / spread
    return float(found[0] - weights @ mean), weights


def _least(said: Sequence[tuple[float, bool]], base: float) -> tuple[float, int, int]:
    """(least chance from which ways out are surely right more often, how many of those were right, how many were said).

    Above 1 where there is none: then none is said.
    """
    right, best = 0, (2.0, 0, 0)
    ordered = sorted(said, key=lambda each: -each[0])
    for count, (chance, is_right) in enumerate(ordered, 1):
        right += is_right
        if count < len(ordered) and ordered[count][0] == chance:
            continue
        if wilson(right, count)[0] >= min(base + LIFT, LIKELY):
            best = (round(chance, 6), right, count)
    return best


def _sigmoid(scores: Vector) -> Vector:
    chances: Vector = 1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0)))
    return chances
