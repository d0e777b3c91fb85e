"""Measure whether what an earlier agent met is found when a session meets it again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.backtest.cases import Case
from benchmarks.foresight.failure_recall import FailureRecall, MetFailure, TextEncoder, failures_of
from fleetlore.stats.hashing import stable_hash
from models.backtest.report import mean
from models.backtest.splitting import Slice

TOP = 5
# Of the reciprocal rank: what is found no higher than this counts as not found.
DEEP = 20
# Questions asked of each source and slice, drawn by hash: a rate over so many is known to ±2 %.
QUESTIONS = 1_500


def retrieval(
    train: Sequence[Case], test: Sequence[Case], slices: Sequence[Slice], encoder: TextEncoder
) -> dict[str, dict[str, dict[str, float | None]]]:
    """By source and slice: hit@1, hit@5 and mean reciprocal rank (of the first 20) of the failure at the same task and
    of the same pattern (class level) that an earlier agent met.

    A question is the first of each failure of a test session, by goal, call, error and what the session did just
    before; `hit5_without_goal` asks without the goal. What is earlier: all of training, and the test sessions before it
    in the order given. Figures are over the questions that have an answer, `covered` is their share.
    """
    recall = FailureRecall(encoder)
    for case in train:
        for failure in failures_of(case.trajectory):
            recall.add(failure)
    asked: dict[tuple[str, Slice], int] = defaultdict(int)
    ranks: dict[tuple[str, Slice], list[tuple[int | None, int | None]]] = defaultdict(list)
    chosen = _drawn(test, slices)
    for place, (case, slice_) in enumerate(zip(test, slices, strict=True)):
        failures = failures_of(case.trajectory)
        for failure in failures:
            if (place, failure.pattern) in chosen:
                asked[case.source, slice_] += 1
                if recall.met_by_others(failure):
                    without = replace(failure, goal="")
                    ranks[case.source, slice_].append((_rank(recall, failure, DEEP), _rank(recall, without, TOP)))
        for failure in failures:
            recall.add(failure)
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for source, slice_ in sorted(set(zip((case.source for case in test), slices, strict=True))):
        found, questions = ranks[source, slice_], asked[source, slice_]
        figures.setdefault(source, {})[slice_] = {
            "hit1": mean([float(rank == 1) for rank, _ in found]),
            "hit5": mean([float(rank is not None and rank <= TOP) for rank, _ in found]),
            "mrr": mean([1 / rank if rank else 0.0 for rank, _ in found]),
            "hit5_without_goal": mean([float(rank is not None) for _, rank in found]),
            "covered": len(found) / questions if questions else None,
        }
    return figures


def _rank(recall: FailureRecall, failure: MetFailure, most: int) -> int | None:
    for rank, each in enumerate(recall.similar(failure, most), 1):
        if (each.task, each.pattern) == (failure.task, failure.pattern):
            return rank
    return None


def _drawn(test: Sequence[Case], slices: Sequence[Slice]) -> set[tuple[int, str]]:
    """Which questions are asked: (place of the session, pattern)."""
    questions: dict[tuple[str, Slice], list[tuple[int, int, str]]] = defaultdict(list)
    for place, (case, slice_) in enumerate(zip(test, slices, strict=True)):
        for failure in failures_of(case.trajectory):
            drawn = stable_hash(f"{failure.session}/{failure.pattern}")
            questions[case.source, slice_].append((drawn, place, failure.pattern))
    return {(place, pattern) for own in questions.values() for _, place, pattern in sorted(own)[:QUESTIONS]}
