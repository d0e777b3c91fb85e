"""Compute means with bootstrap intervals over paired runs.

A run is one (seed, order). Orders of one seed share its world, so seeds are drawn first and then orders within each
(cluster bootstrap, Davison and Hinkley 1997, §3.8): treating all runs as independent would make the intervals too
narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

DRAWS = 4_000
LEVEL = 0.95

# A figure by seed: one value an order.
Cells = Mapping[int, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over runs, its 95 % interval, and the greatest and the smallest run.

    Attributes:
        gap: between the two.
    """

    mean: float
    low: float
    high: float
    greatest: float
    smallest: float

    @property
    def gap(self) -> float:
        return self.greatest - self.smallest

    def to_dict(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in (asdict(self) | {"gap": self.gap}).items()}


def interval(cells: Cells, seed: int = 0) -> Interval:
    """Mean over all runs with its percentile interval. Raises ValueError for no runs.

    NaN stands for a run that has no such figure (no session met an error, so none could recover); it is left out.
    """
    values = [[value for value in cells[key] if not np.isnan(value)] for key in sorted(cells)]
    values = [each for each in values if each]
    if not values:
        raise ValueError("no runs have this figure")
    rng = np.random.default_rng(seed)
    counts = np.array([len(each) for each in values])
    table = np.zeros((len(values), int(counts.max())))
    for row, each in enumerate(values):
        table[row, : len(each)] = each
    chosen = rng.integers(len(values), size=(DRAWS, len(values)))
    places = (rng.random((*chosen.shape, table.shape[1])) * counts[chosen][..., None]).astype(np.int64)
    drawn = table[chosen[..., None], places]
    real = np.arange(table.shape[1]) < counts[chosen][..., None]
    means = (drawn * real).sum(axis=(1, 2)) / real.sum(axis=(1, 2))
    flat = [value for each in values for value in each]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(np.mean(flat)), float(low), float(high), max(flat), min(flat))


def paired_difference(ours: Cells, theirs: Cells, seed: int = 0) -> Interval:
    """Ours minus theirs, run by run: what the runs have in common cancels out.

    Raises:
        ValueError: no run has both.
    """
    return interval({key: [a - b for a, b in zip(ours[key], theirs[key], strict=True)] for key in ours}, seed)
