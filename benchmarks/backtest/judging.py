"""Measure the chain of judges on complete sessions with their rewards hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.backtest.cases import Case
from benchmarks.backtest.scores import balanced_accuracy, cohen_kappa, kappa_with_silence
from models.backtest.report import Slice
from models.judge.chain import JudgeChain


def judging(
    cases: Sequence[Case], slices: Sequence[Slice], chain: JudgeChain
) -> dict[str, dict[str, dict[str, float | None]]]:
    """By source and slice, over the sessions with a known end.

    kappa, balanced_accuracy: over the judged sessions. kappa_all: over all, where no verdict is never right.
    false_success_rate: share of the judged failures called a success. abstained: share of all that were not judged.
    """
    said: dict[tuple[str, Slice], list[tuple[bool | None, bool]]] = defaultdict(list)
    for case, slice_ in zip(cases, slices, strict=True):
        if case.failed is not None:
            label = chain.judge(case.trajectory).label
            said[case.source, slice_].append((None if label == "abstained" else label == "failure", case.failed))
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for source, slice_ in sorted(set(zip((case.source for case in cases), slices, strict=True))):
        all_of = said[source, slice_]
        judged = [(verdict, failed) for verdict, failed in all_of if verdict is not None]
        pairs = np.array(judged, bool).reshape(-1, 2)
        verdict, failed = pairs[:, 0], pairs[:, 1]
        figures.setdefault(source, {})[slice_] = {
            "kappa": cohen_kappa(verdict, failed),
            "kappa_all": kappa_with_silence([each for each, _ in all_of], [each for _, each in all_of]),
            "balanced_accuracy": balanced_accuracy(verdict, failed),
            "false_success_rate": float((~verdict[failed]).mean()) if failed.any() else None,
            "abstained": 1 - len(judged) / len(all_of) if all_of else None,
        }
    return figures
