"""Compute all figures of a backtest in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.backtest.cases import Case
from benchmarks.backtest.judging import judging
from benchmarks.backtest.memory_quality import harmless_patterns, harmless_warnings, junk_reasons, recurrence
from models.backtest.report import slices_of
from models.judge.chain import JudgeChain, RulesJudge
from streams.offline.memory_pipeline import OfflineRun


def backtest(
    train: Sequence[Case],
    test: Sequence[Case],
    learned: OfflineRun,
    *,
    seed: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """All figures; None where undefined.

    Args:
        train, test: in the order of the stream.
        progress: called with the current step.
    """
    slices = slices_of(train, test)
    progress("judging")
    judged = judging(test, slices, JudgeChain([RulesJudge()]))
    progress("looking for junk")
    harmless = harmless_patterns([*train, *test])
    recalled = [item for item in learned.items]
    reasons = junk_reasons(recalled, {case.trajectory.session for case in train}, harmless)
    if reasons:
        progress("junk: " + ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())))
    return {
        "judge": judged,
        "recurrence": recurrence(train, test),
        "junk_rate": reasons.total() / len(recalled) if recalled else None,
        "harmless_warnings": harmless_warnings(test, learned.patterns, learned.items, harmless, learned.ended),
    }
