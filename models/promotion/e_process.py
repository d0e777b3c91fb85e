"""Keep evidence that may be read at any time: e-processes, by betting against a null hypothesis.

A bettor against "the mean is at most 0" multiplies its wealth. If the hypothesis is true, the probability of ever
reaching 1 / alpha is at most alpha (Ville's inequality). So a decision may be taken as soon as the wealth is there, and
a test may run as long as data arrive (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Shares of the wealth that a bet may lose. The wealth is the mean over all of them, since one is nearly the best.
_STAKES = np.linspace(0.05, 0.95, 19)


class _Wealth:
    """Wealth from bets on gains, clipped to -1..1, against "given the past, their mean is at most 0", in any order.

    Args:
        log: of the wealth to begin with.
    """

    def __init__(self, log: float = 0.0) -> None:
        self._logs = np.full(len(_STAKES), log)

    def bet(self, gains: Sequence[float]) -> None:
        """Bet a share of the wealth on each."""
        self._logs += np.log1p(np.multiply.outer(_STAKES, np.clip(gains, -1, 1))).sum(axis=1)

    @property
    def log(self) -> float:
        """0 before the first bet."""
        top = float(self._logs.max())
        return top + math.log(float(np.exp(self._logs - top).mean()))


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth after betting on all of them."""
    wealth = _Wealth()
    wealth.bet(gains)
    return wealth.log
