"""Measure how well scores rank failures above successes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def auroc(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float | None:
    """Probability that a positive scores above a negative, ties by half (Mann-Whitney); None unless both occur."""
    won, pairs = pairs_won(np.asarray(scores), np.asarray(positive, bool))
    return won / pairs if pairs else None


def pairs_won(scores: npt.NDArray[Any], positive: npt.NDArray[np.bool_]) -> tuple[float, int]:
    """Pairs in which the positive scores higher (ties by half), and all pairs."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positives = int(positive.sum())
    won = float(ranks[positive].sum() - positives * (positives + 1) / 2)
    return won, positives * (len(positive) - positives)
