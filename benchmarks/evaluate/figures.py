"""Compute means with intervals that are clustered by task: personas, seeds and orders share what is hard about a
task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.evaluate.play import BUDGET, Played

DRAWS = 4_000
LEVEL = 0.95

# By arm and slice: what was played, in the same order for every arm.
Results = Mapping[str, Mapping[str, Sequence[Played]]]
NONE = "none"
# The budget of the differences.
AT = 5


def report(results: Results) -> dict[str, Any]:
    """All sections of `benchmarks.evaluate.__main__` that are counted from what was played.

    A difference is of the share solved within five calls, or of first calls that fail, arm minus rival, over the same
    sessions and draws.
    """
    return {
        "solved": {
            arm: {
                name: {
                    str(budget): interval([each.task for each in some], [each.solved[budget - 1] for each in some])
                    for budget in range(1, BUDGET + 1)
                }
                for name, some in slices.items()
            }
            for arm, slices in results.items()
        },
        "calls": _means(results, lambda each: each.calls),
        "failed": _means(results, lambda each: each.failed),
        "failed_safest": _means(results, lambda each: each.failed_safest),
        "log_loss": _means(results, lambda each: each.log_loss),
        "paired": _differences(results, lambda each: each.solved[AT - 1]),
        "paired_failed": _differences(results, lambda each: each.failed),
        "sessions": {
            name: {"sessions": len(some), "tasks": len({each.task for each in some})}
            for name, some in next(iter(results.values())).items()
        },
    }


def _means(results: Results, figure: Callable[[Played], float | None]) -> dict[str, dict[str, dict[str, float]]]:
    """By arm and slice; a slice is left out where the figure is not there for each session, an arm without a slice."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for arm, slices in results.items():
        found[arm] = {}
        for name, some in slices.items():
            values = [value for each in some if (value := figure(each)) is not None]
            if len(values) == len(some):
                found[arm][name] = interval([each.task for each in some], values)
    return {arm: slices for arm, slices in found.items() if slices}


def _differences(
    results: Results, figure: Callable[[Played], float]
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    return {
        arm: {
            rival: {name: _difference(some, results[rival][name], figure) for name, some in slices.items()}
            for rival in results
            if rival != arm
        }
        for arm, slices in results.items()
    }


def _difference(
    ours: Sequence[Played], theirs: Sequence[Played], figure: Callable[[Played], float]
) -> dict[str, float]:
    pairs = list(zip(ours, theirs, strict=True))
    assert all(a[:2] == b[:2] for a, b in pairs)
    return interval([a.task for a, _ in pairs], [figure(a) - figure(b) for a, b in pairs])


def interval(clusters: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """`mean` with `low` and `high`, by drawing clusters (95 %)."""
    by: defaultdict[str, list[float]] = defaultdict(list)
    for cluster, value in zip(clusters, values, strict=True):
        by[cluster].append(value)
    sums, counts = np.array([sum(each) for each in by.values()]), np.array([len(each) for each in by.values()])
    chosen = np.random.default_rng(0).integers(len(by), size=(DRAWS, len(by)))
    means = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return {"mean": round(float(np.mean(values)), 4), "low": round(float(low), 4), "high": round(float(high), 4)}
