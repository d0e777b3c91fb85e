"""Track whether this worker still owns its partitions.

A worker paused for longer than its session timeout wakes up with states that another worker owns. Kafka refuses its
commits, but the store would accept its rows, so effects need a lease. The coordinator accepts commits from members
only, so each accepted commit renews the lease from the time of its request.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fleetlore.errors import LeaseLapsed

__all__ = ["SHARE", "Lease"]

# Share of the session timeout. The margin covers the coordinator's later clock and the write itself.
SHARE = 0.8

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return seconds since boot, including suspended time."""
    return time.clock_gettime(_CLOCK)


class Lease:
    def __init__(self, seconds: float, clock: Callable[[], float] = since_boot) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")

    def now(self) -> float:
        return self._clock()

    def renew(self, asked: float) -> None:
        self._until = max(self._until, asked + self._seconds)

    @property
    def holds(self) -> bool:
        return self._clock() < self._until

    def check(self) -> None:
        if not self.holds:
            raise LeaseLapsed(
                "the coordinator has taken no commit for a session timeout: another worker may have taken over"
            )
