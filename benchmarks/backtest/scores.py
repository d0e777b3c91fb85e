"""Score predictions. A figure is None where it is undefined, never NaN: NaN is not JSON and hides what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CALIBRATION_BINS = 10


def cohen_kappa(said: Bools, true: Bools) -> float | None:
    """Agreement beyond chance (Cohen 1960); None without verdicts, or where chance alone always agrees."""
    if not len(true):
        return None
    agreed = float((said == true).mean())
    chance = float(said.mean() * true.mean() + (1 - said.mean()) * (1 - true.mean()))
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def kappa_with_silence(said: Sequence[bool | None], true: Sequence[bool]) -> float | None:
    """`cohen_kappa` where no verdict (None) is an answer of its own, which is never right; None without a session."""
    if not true:
        return None
    agreed = mean([verdict == outcome for verdict, outcome in zip(said, true, strict=True)]) or 0.0
    chance = sum(said.count(outcome) * true.count(outcome) for outcome in (True, False)) / len(true) ** 2
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def balanced_accuracy(said: Bools, true: Bools) -> float | None:
    """Mean of the recalls of both outcomes; None unless both occur."""
    if not len(true) or true.all() or not true.any():
        return None
    return float((said[true].mean() + (~said[~true]).mean()) / 2)


def calibration_error(probability: Floats, failed: Bools) -> float | None:
    """Expected calibration error over ten equal bins, weighted by their sizes (Guo et al. 2017)."""
    if not len(failed):
        return None
    bins = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [abs(float((probability[bins == each] - failed[bins == each]).sum())) for each in np.unique(bins)]
    return sum(gaps) / len(failed)


def mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return sum(values) / len(values) if values else None
