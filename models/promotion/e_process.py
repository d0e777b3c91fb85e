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


class Wealth:
    """Of betting on gains, each within -1..1 (clipped to that), against "given the past, their mean is at most 0". Of order it is free."""

    def __init__(self) -> None:
        self._logs = np.zeros(len(STAKES))

    def bet(self, gains: Sequence[float]) -> None:
        """Bet a share of the wealth on each."""
        self._logs += np.log1p(np.multiply.outer(STAKES, np.clip(gains, -1, 1))).sum(axis=1)

    @property
    def log(self) -> float:
        """0 before the first bet."""
        top = float(self._logs.max())
        return top + math.log(float(np.exp(self._logs - top).mean()))


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth after betting on all of them."""
    wealth = Wealth()
    wealth.bet(gains)
    return wealth.log
