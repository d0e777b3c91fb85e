"""Measure the chain of judges on complete sessions with their rewards hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from models.backtest.cases import Case, Slice
from models.backtest.scores import balanced_accuracy, cohen_kappa
from models.judge.chain import JudgeChain


def judging(
    cases: Sequence[Case], slices: Sequence[Slice], chain: JudgeChain
) -> dict[str, dict[str, dict[str, float | None]]]:
    """By source and slice, over the sessions with a known end.

    kappa, balanced_accuracy: over the judged sessions. false_success_rate: share of the judged failures called a
    success. abstained: share of all that were not judged.
    """
    said: dict[tuple[str, Slice], list[tuple[bool, bool]]] = defaultdict(list)
    abstained: dict[tuple[str, Slice], int] = defaultdict(int)
    for case, slice_ in zip(cases, slices, strict=True):
        if case.failed is None:
            continue
        label = chain.judge(case.trajectory).label
        if label == "abstained":
            abstained[case.source, slice_] += 1
        else:
            said[case.source, slice_].append((label == "failure", case.failed))
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for source, slice_ in sorted(set(zip((case.source for case in cases), slices, strict=True))):
        pairs = np.array(said[source, slice_], bool).reshape(-1, 2)
        verdict, failed = pairs[:, 0], pairs[:, 1]
        silent = abstained[source, slice_]
        figures.setdefault(source, {})[slice_] = {
            "kappa": cohen_kappa(verdict, failed),
            "balanced_accuracy": balanced_accuracy(verdict, failed),
            "false_success_rate": float((~verdict[failed]).mean()) if failed.any() else None,
            "abstained": silent / (silent + len(pairs)) if silent + len(pairs) else None,
        }
    return figures
