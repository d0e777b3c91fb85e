"""Compute 95 % intervals of rates that hold for few trials and for rates of 0 and 1."""

from __future__ import annotations

import math


def wilson(failures: float, calls: float, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a rate (Wilson 1927), or (0, 1) without trials."""
    if calls <= 0:
        return 0.0, 1.0
    rate = failures / calls
    spread = z * math.sqrt(rate * (1 - rate) / calls + z * z / (4 * calls * calls))
    centre = rate + z * z / (2 * calls)
    scale = 1 + z * z / calls
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def newcombe(one: tuple[float, float], other: tuple[float, float], z: float = 1.96) -> tuple[float, float]:
    """Return the interval of the difference of two independent rates, each as (trials, hits).

    Newcombe's hybrid score interval (Newcombe 1998, Statistics in Medicine 17:873–890, method 10).
    """
    (trials, hits), (other_trials, other_hits) = one, other
    rate, other_rate = hits / trials, other_hits / other_trials
    (low, high), (other_low, other_high) = wilson(hits, trials, z), wilson(other_hits, other_trials, z)
    difference = rate - other_rate
    return (
        difference - math.hypot(rate - low, other_high - other_rate),
        difference + math.hypot(high - rate, other_rate - other_low),
    )
