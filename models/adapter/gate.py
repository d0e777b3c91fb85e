"""Decide whether a version may go into service: a gate before it is published, and a trial on a share of the agents.

The gate ranks ways out of sessions that come next. Cases are taken in the order in which their sessions ended. An
adapter that has learned the first half ranks ways out for the third quarter, one that has learned three quarters for
the last, so each case is ranked before it is learned (prequential evaluation, Dawid 1984). What counts is the
reciprocal rank of the first way out that holds what the failed call lacked, less the rank that words alone (tf-idf)
give it; a task counts once, however many sessions try it. The mean must be above 0 by a bet that may be read at any
time (`log_wealth`), and on cases that the published version has not seen, the candidate must rank no worse.

The trial asks whether sessions under the new version end as well as the others'. Votes are paired as they come, one
under each version, and each difference is a bet, so the trial may be read after every pair. The version is promoted on
evidence that it costs less than `_MARGIN` of success, and aborted on evidence that it costs any. Without enough votes
it is aborted when the time is up: missing data is no success. A principal has one vote a minute, however many sessions
its agents end, and only under the version that it is to run. What is decided holds without any one principal: nobody's
word alone promotes a version, or takes one back before the time is up. Whoever fails on purpose withholds a version
only while it is drawn to try it, and each version is tried by others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.retrieval.adapter import Ranking, RetrievalAdapter
from fleetlore.retrieval.encoder import Encoder
from fleetlore.wire.adapter_manifest import in_cohort
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Judgment
from models.adapter.pairs import Case, Memory, is_other
from models.calls.gate import GateReport

__all__ = ["CanaryTrial", "judge_retrieval", "log_wealth"]

_Decision = Literal["promote", "abort", "waiting"]
_Vote = tuple[str, bool]  # a principal, and whether its session succeeded
_Learn = Callable[[Sequence[Case]], RetrievalAdapter | None]

_MARGIN = 0.1
# Probability of publishing an adapter that is no better than words, of promoting a version that costs `_MARGIN` of
# success, or of aborting a harmless one.
_ALPHA = 0.05
_PATIENCE_SECONDS = 7200.0
# A principal has one vote in each such stretch of the trial.
VOTE_SECONDS = 60.0
# Shares of the wealth that a bet may lose. The wealth is the mean over all of them, since one is nearly the best.
_STAKES = np.linspace(0.05, 0.95, 19)
# Shares of the cases from which an adapter ranks the next ones.
_FOLDS = (0.5, 0.75, 1.0)
# Queries that have an answer, below which nothing is decided.
LEAST = 40
# MRR by which a candidate may be behind the published version on the same cases.
TOLERANCE = 0.02


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth from bets on gains, clipped to -1..1, against "given the past, their mean is at most 0".

    If that is true, the probability that the wealth ever reaches 1 / alpha is at most alpha (Ville's inequality). So a
    decision may be taken as soon as the wealth is there, and a test may run as long as data arrive (Waudby-Smith and
    Ramdas 2024, "Estimating means of bounded random variables by betting").
    """
    logs = np.log1p(np.multiply.outer(_STAKES, np.clip(gains, -1, 1))).sum(axis=1)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))


class CanaryTrial:
    """One version, run by a share of the agents, against the running one; sessions of other versions are ignored."""

    def __init__(self, canary: str, stable: str, share: float, began: float) -> None:
        self.canary = canary
        self.stable = stable
        self._share = share
        self._began = began
        # By version, as they came.
        self._votes: dict[str, list[_Vote]] = {canary: [], stable: []}
        self._voted: set[tuple[str, int]] = set()
        self._seen: set[str] = set()

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        return {version: (len(votes), sum(won for _, won in votes)) for version, votes in self._votes.items()}

    def add(self, judgment: Judgment, now: float) -> None:
        """Count a session under the version that it ran last; a repeated one changes nothing."""
        trajectory = judgment.trajectory
        agent = principal_of(trajectory.agent)
        version = next((step.adapter for step in reversed(trajectory.steps) if step.adapter is not None), None)
        # A session says itself what it ran under. Whose turn it is to try the canary, its principal's name says.
        if version != (self.canary if in_cohort(agent, self._share, self.canary) else self.stable):
            return
        vote = agent, int((now - self._began) // VOTE_SECONDS)
        if judgment.verdict.label == "abstained" or trajectory.id in self._seen or vote in self._voted:
            return
        self._seen.add(trajectory.id)
        self._voted.add(vote)
        self._votes[version].append((agent, judgment.verdict.label == "success"))

    def decide(self, now: float) -> _Decision:
        pairs = list(zip(self._votes[self.canary], self._votes[self.stable], strict=False))
        found = self._evidence(pairs)
        agents = {agent for pair in pairs for agent, _ in pair} if found != "waiting" else ()
        # A principal's pairs go with it: in other pairs the votes of the others would say something else by chance.
        without = ([pair for pair in pairs if agent not in (pair[0][0], pair[1][0])] for agent in agents)
        if agents and all(self._evidence(rest) == found for rest in without):
            return found
        return "abort" if now - self._began >= _PATIENCE_SECONDS else "waiting"

    def _evidence(self, pairs: list[tuple[_Vote, _Vote]]) -> _Decision:
        lost = [int(stable) - int(canary) for (_, canary), (_, stable) in pairs]
        needed = -math.log(_ALPHA)
        if log_wealth(lost) >= needed:
            return "abort"
        if log_wealth([(_MARGIN - each) / (1 + _MARGIN) for each in lost]) >= needed:
            return "promote"
        return "waiting"


class _Ranked(NamedTuple):
    """Reciprocal ranks of the first right way out, 0 where none is found: by words, by the adapter, by another one."""

    case: Case
    words: float
    adapter: float
    published: float | None


def judge_retrieval(
    cases: Sequence[Case],
    learn: _Learn,
    encoder: Encoder,
    published: RetrievalAdapter | None = None,
    until: float = 0.0,
    ended: Sequence[float] = (),
    pace: Callable[[], object] = lambda: None,
) -> GateReport:
    """Rank each later part of the cases (the oldest first) by what was learned from the parts before it.

    Args:
        published: the version in service, which had seen what ended `until`; `ended` says when, for each case.
        pace: called for each case that is ranked.
    """
    ranked: list[_Ranked] = []
    for begin, end in pairwise(_FOLDS):
        first, last = round(begin * len(cases)), round(end * len(cases))
        adapter = learn(cases[:first])
        if adapter is None:
            continue
        seen = [place for place in range(first, last) if published is not None and ended[place] <= until]
        before = {each - first for each in seen}
        ranked += rank(cases[:first], cases[first:last], encoder, adapter, published, before, pace)
    figures = {"queries": float(len(ranked))}
    if len(ranked) < LEAST:
        return GateReport("too_few", figures)
    gains = _by_task(ranked)
    figures |= {
        "mrr": float(np.mean([each.adapter for each in ranked])),
        "mrr_words": float(np.mean([each.words for each in ranked])),
        "tasks": float(len(gains)),
        "log_evidence": log_wealth(gains),
    }
    if figures["log_evidence"] < -log(_ALPHA):
        return GateReport("no_gain", figures)
    new = [(each.adapter, each.published) for each in ranked if each.published is not None]
    if len(new) >= LEAST:
        figures["mrr_new"], figures["mrr_published"] = (float(np.mean(column)) for column in zip(*new, strict=True))
        if figures["mrr_new"] < figures["mrr_published"] - TOLERANCE:
            return GateReport("worse_than_published", figures)
    return GateReport("better", figures)


def rank(
    known: Sequence[Case],
    queries: Sequence[Case],
    encoder: Encoder,
    adapter: RetrievalAdapter,
    published: RetrievalAdapter | None = None,
    seen: frozenset[int] | set[int] = frozenset(),
    pace: Callable[[], object] = lambda: None,
) -> list[_Ranked]:
    """Rank the known cases' ways out for each query that one of them answers.

    `seen`: places of queries that the published version has learned.
    """
    memory, ranking = Memory(known), Ranking([case.answer for case in known], encoder)
    ranked = []
    for place, case in enumerate(queries):
        pace()
        right = memory.answers(case)
        if not right:
            continue
        fair = published is not None and place not in seen
        ranked.append(
            _Ranked(
                case,
                reciprocal_rank(ranking.by_words(case.query), known, case, right),
                reciprocal_rank(ranking.scores(case.query, adapter), known, case, right),
                reciprocal_rank(ranking.scores(case.query, published), known, case, right)
                if published is not None and fair
                else None,
            )
        )
    return ranked


def reciprocal_rank(scores: npt.NDArray[np.float64], known: Sequence[Case], case: Case, right: set[int]) -> float:
    """1 / rank of the best right one among the ways out of other sessions and tasks; texts alike count once."""
    said: set[str] = set()
    for place in np.argsort(-scores, kind="stable").tolist():
        if not is_other(known[place], case) or known[place].answer in said:
            continue
        said.add(known[place].answer)
        if place in right:
            return 1.0 / len(said)
    return 0.0


def _by_task(ranked: Sequence[_Ranked]) -> list[float]:
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for each in ranked:
        gains[each.case.task].append(each.adapter - each.words)
    return [float(np.mean(of_task)) for of_task in gains.values()]
