"""Calibrate scores: Platt scaling with a ridge, and the evidence for a ridge."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RIDGE: Final = 4.0
FLATTEST: Final = 0.1
# A slope under this ridge stays 1, so that only the shift is fitted.
PINNED: Final = 1e9
_PRIOR: Final = np.array([1.0, 0.0])


def platt(scores: Floats, outcome: Flags, ridge: tuple[float, float] = (RIDGE, RIDGE)) -> tuple[float, float]:
    """Slope and shift that turn scores into log odds, by ridge-penalised maximum likelihood; (1, 0) without any score.

    Source: Platt 1999. The ridge (of the slope, of the shift) pulls towards (1, 0), so that a few sessions change
    little.
    """
    slope, shift = _fitted(scores, outcome, np.array(ridge))[0].tolist()
    # A score worse than chance on left-out sessions is noise; a negative slope would turn it round.
    return max(FLATTEST, slope), shift


def evidence(scores: Floats, outcome: Flags, ridge: tuple[float, float]) -> float:
    """Log of P(outcome) if slope and shift were drawn around (1, 0) with these precisions (Laplace; MacKay 1992)."""
    precision = np.array(ridge)
    fitted, curvature = _fitted(scores, outcome, precision)
    logits = fitted[0] * scores + fitted[1]
    likely = -float(np.logaddexp(0, np.where(outcome, -logits, logits)).sum())
    drawn = float(np.log(precision).sum() - (precision * (fitted - _PRIOR) ** 2).sum())
    return likely + 0.5 * (drawn - float(np.linalg.slogdet(curvature)[1]))


def _fitted(scores: Floats, outcome: Flags, precision: Floats) -> tuple[Floats, Floats]:
    """Slope and shift by Newton's method, and the curvature there."""
    design = np.stack([scores, np.ones(len(scores))], axis=1)
    fitted, penalty = _PRIOR.copy(), np.diag(precision)
    curvature = penalty
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ fitted, -30, 30)))
        gradient = design.T @ (p - outcome) + precision * (fitted - _PRIOR)
        curvature = (design * (p * (1 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(curvature, gradient)
        fitted -= step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-9:
            break
    return fitted, curvature
