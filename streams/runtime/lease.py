"""Track whether this worker still owns its partitions, as far as it can know.

A worker that was stopped for longer than its session timeout (SIGSTOP, a paused machine, swap) wakes up with states
that another worker has taken over meanwhile, and its commits are refused but its rows are not. So the right to have
effects is a lease: each commit that the group's coordinator takes, which it does of members alone, renews it from the
moment it was asked. What lapsed is renewed by the next where only the broker was away, or else ends with the rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fleetlore.errors import LeaseLapsed

# Of the session timeout: the coordinator's clock starts later than ours, and the write itself takes time too.
SHARE = 0.8

# The one that goes on while a machine is suspended, where there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds that also a suspended machine counts."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """Of one worker; renewed on the event loop and checked on any thread.

    Args:
        seconds: how long it holds after the commit that renewed it was asked for.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = since_boot) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")

    def now(self) -> float:
        return self._clock()

    def renew(self, asked: float) -> None:
        """The coordinator has taken a commit that it was asked for at `asked`."""
        self._until = max(self._until, asked + self._seconds)

    @property
    def holds(self) -> bool:
        return self._clock() < self._until

    def check(self) -> None:
        """Raise LeaseLapsed where another worker may own the partitions by now."""
        if not self.holds:
            raise LeaseLapsed(
                "the coordinator has taken no commit for a session timeout: another worker may have taken over"
            )
