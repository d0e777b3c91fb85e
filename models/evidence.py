"""Evidence that may be looked at any time: betting against a null hypothesis.

Whoever bets against "the mean is at most 0" and multiplies the wealth has, if that is true, at no time a chance above
alpha to have 1 / alpha of it (Ville's inequality); so a decision may be taken as soon as the wealth is there, and a test may
go on for as long as data come (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

STAKES = np.linspace(0.05, 0.95, 19)
"""Shares of the wealth that a bet may lose. The wealth is the mean over all of them: one of them is nearly the best."""


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth of betting on `gains`, each within -1..1, against "their mean is at most 0". Of order it is free."""
    if not len(gains):
        return 0.0
    logs = np.log1p(np.multiply.outer(STAKES, np.asarray(gains, dtype=np.float64))).sum(axis=1)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))
