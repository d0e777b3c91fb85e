"""Track which offsets may be committed, and whether this worker still owns its partitions.

A worker paused for longer than its session timeout wakes up with states that another worker owns. Kafka refuses its
commits, but the store would accept its rows, so effects need a lease. The coordinator accepts commits from members
only, so each accepted commit renews the lease.
"""

import time
from collections.abc import Callable
from functools import partial

from fleetlore.clock import Clock, SystemClock
from fleetlore.errors import LeaseLapsed
from streams.stage.base import TopicPartition

__all__ = ["Ledger"]


class Ledger:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._positions: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, tuple[int, float]] = {}

    def allow(self, tp: TopicPartition, position: int, committable: int) -> None:
        """Offsets before `position` are processed, and those before `committable` may be committed."""
        self._positions[tp] = position
        self._pending[tp] = committable
        self._first.setdefault(tp, committable)

    def hold(self, tp: TopicPartition, offset: int, seconds: float) -> None:
        """Commit no offset from `offset` on for `seconds`. Earlier commits remain."""
        self._held[tp] = offset, self._clock.monotonic() + seconds

    def positions(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Count processed but uncommitted records, which a restart reads again. Before a commit: the first batch's."""
        return {tp: max(0, at - self._committed.get(tp, self._first[tp])) for tp, at in self._positions.items()}

    def take(self) -> dict[TopicPartition, int]:
        moved, kept = {}, {}
        for tp, offset in self._pending.items():
            start, until = self._held.get(tp, (offset, 0.0))
            if start < offset and self._clock.monotonic() < until:
                kept[tp] = offset
                offset = max(start, self._committed.get(tp, 0))
            if self._committed.get(tp) != offset:
                moved[tp] = offset
        self._pending = kept
        return moved

    def settle(self, offsets: dict[TopicPartition, int]) -> None:
        """Record a commit. A forgotten partition may return at another offset."""
        self._committed.update({tp: offset for tp, offset in offsets.items() if tp in self._positions})

    def put_back(self, offsets: dict[TopicPartition, int]) -> None:
        """Restore offsets whose commit failed, unless newer ones are allowed."""
        self._pending = {tp: offset for tp, offset in offsets.items() if tp in self._positions} | self._pending

    def forget(self) -> None:
        self._positions.clear()
        self._first.clear()
        self._pending.clear()
        self._committed.clear()
        self._held.clear()


# The margin covers the coordinator's later clock and the write itself.
SHARE = 0.8

# It goes on while the machine sleeps.
_since_boot = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    def __init__(self, seconds: float, clock: Callable[[], float] = _since_boot) -> None:
        self._seconds, self.now = seconds, clock
        self._until = float("-inf")

    def renew(self, asked: float) -> None:
        self._until = max(self._until, asked + self._seconds)

    @property
    def holds(self) -> bool:
        return self.now() < self._until

    def check(self) -> None:
        if not self.holds:
            raise LeaseLapsed(
                "the coordinator has taken no commit for a session timeout: another worker may have taken over"
            )
