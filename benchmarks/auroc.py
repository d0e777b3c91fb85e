"""Measure how well scores rank failures above successes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def auroc(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float | None:
    """Probability that a positive scores above a negative, ties by half (Mann-Whitney); None unless both occur."""
    chosen = np.asarray(positive, bool)
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positives = int(chosen.sum())
    won, pairs = float(ranks[chosen].sum() - positives * (positives + 1) / 2), positives * (len(chosen) - positives)
    return won / pairs if pairs else None
