"""Measure what is known of a session before it begins: how often its task, and its agent, failed before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from models.backtest.cases import Case, Slice
from models.data.auroc import auroc
from models.judge.prefix import first_calls

Counts = tuple[int, int]  # failed, of how many


def priors(
    train: Sequence[Case], test: Sequence[Case], slices: Sequence[Slice]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """AUROC of two failure rates in training: of the *other* agents on the task, and of the agent on *other* tasks.

    Over test sessions with a known end that go on after their first tool call. A session without a known rate does not
    count; without any, the figure is None.
    """
    seen: dict[tuple[str, str, str, str], Counts] = defaultdict(lambda: (0, 0))
    for case in train:
        if case.failed is not None:
            for key in (("task", case.task, ""), ("agent", "", case.agent), ("both", case.task, case.agent)):
                failed, total = seen[case.source, *key]
                seen[case.source, *key] = failed + case.failed, total + 1
    rates: dict[tuple[str, Slice, str], list[tuple[float, bool]]] = defaultdict(list)
    for case, slice_ in zip(test, slices, strict=True):
        if case.failed is None or first_calls(case.trajectory, 1) is None:
            continue
        own = seen.get((case.source, "both", case.task, case.agent), (0, 0))
        for name, key in (("task", ("task", case.task, "")), ("agent", ("agent", "", case.agent))):
            failed, total = seen.get((case.source, *key), (0, 0))
            if total > own[1]:
                rates[case.source, slice_, name].append(((failed - own[0]) / (total - own[1]), case.failed))
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for source, slice_ in sorted(set(zip((case.source for case in test), slices, strict=True))):
        row = figures.setdefault(source, {})[slice_] = {}
        for name in ("task", "agent"):
            pairs = np.array(rates[source, slice_, name], float).reshape(-1, 2)
            row[name] = auroc(pairs[:, 0], pairs[:, 1] > 0.5)
    return figures
