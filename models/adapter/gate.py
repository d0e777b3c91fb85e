"""Decide whether a retrieval adapter may be published: by how it ranks the ways out of sessions that come next.

Cases are taken in the order in which their sessions ended. An adapter that has learned the first half ranks ways out
for the third quarter, one that has learned three quarters for the last, so each case is ranked before it is learned
(prequential evaluation, Dawid 1984). What counts is the reciprocal rank of the first way out that holds what the failed
call lacked, less the rank that words alone (tf-idf) give it; a task counts once, however many sessions try it. The mean
must be above 0 by a bet that may be read at any time (`models.promotion.canary`), and on cases that the published
version has not seen, the candidate must rank no worse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.retrieval.adapter import RetrievalAdapter
from fleetlore.retrieval.encoder import Encoder
from fleetlore.retrieval.ranking import Ranking
from models.adapter.pairs import Case, Memory, is_other
from models.promotion.canary import log_wealth

__all__ = ["judge_retrieval"]

# Shares of the cases from which an adapter ranks the next ones.
_FOLDS = (0.5, 0.75, 1.0)
# Queries that have an answer, below which nothing is decided.
LEAST = 40
# Probability of publishing an adapter that is no better than words.
_ALPHA = 0.05
# MRR by which a candidate may be behind the published version on the same cases.
TOLERANCE = 0.02

_Reason = Literal["better", "too_few", "no_gain", "worse_than_published"]
_Learn = Callable[[Sequence[Case]], RetrievalAdapter | None]


@dataclass(frozen=True, slots=True)
class _RetrievalReport:
    """A decision and its figures."""

    reason: _Reason
    figures: dict[str, float]

    @property
    def passed(self) -> bool:
        return self.reason == "better"


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
) -> _RetrievalReport:
    """Rank each later part of the cases (the oldest first) by what was learned from the parts before it.

    Args:
        published: the version in service, which had seen what ended `until`; `ended` says when, for each case.
    """
    ranked: list[_Ranked] = []
    for begin, end in pairwise(_FOLDS):
        first, last = round(begin * len(cases)), round(end * len(cases))
        adapter = learn(cases[:first])
        if adapter is None:
            continue
        seen = [place for place in range(first, last) if published is not None and ended[place] <= until]
        ranked += rank(cases[:first], cases[first:last], encoder, adapter, published, {each - first for each in seen})
    figures = {"queries": float(len(ranked))}
    if len(ranked) < LEAST:
        return _RetrievalReport("too_few", figures)
    gains = _by_task(ranked)
    figures |= {
        "mrr": float(np.mean([each.adapter for each in ranked])),
        "mrr_words": float(np.mean([each.words for each in ranked])),
        "tasks": float(len(gains)),
        "log_evidence": log_wealth(gains),
    }
    if figures["log_evidence"] < -log(_ALPHA):
        return _RetrievalReport("no_gain", figures)
    new = [(each.adapter, each.published) for each in ranked if each.published is not None]
    if len(new) >= LEAST:
        figures["mrr_new"], figures["mrr_published"] = (float(np.mean(column)) for column in zip(*new, strict=True))
        if figures["mrr_new"] < figures["mrr_published"] - TOLERANCE:
            return _RetrievalReport("worse_than_published", figures)
    return _RetrievalReport("better", figures)


def rank(
    known: Sequence[Case],
    queries: Sequence[Case],
    encoder: Encoder,
    adapter: RetrievalAdapter,
    published: RetrievalAdapter | None = None,
    seen: frozenset[int] | set[int] = frozenset(),
) -> list[_Ranked]:
    """Rank the known cases' ways out for each query that one of them answers.

    Args:
        seen: places of queries that the published version has learned.
    """
    memory, ranking = Memory(known), Ranking([case.answer for case in known], encoder)
    ranked = []
    for place, case in enumerate(queries):
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
    """Mean gain over words of each task, in the order in which tasks came."""
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for each in ranked:
        gains[each.case.task].append(each.adapter - each.words)
    return [float(np.mean(of_task)) for of_task in gains.values()]
