"""Keep which offsets may be committed: those whose effects are acknowledged.

The delivery allows and holds offsets back, the worker takes them and commits.
"""

from __future__ import annotations

from fleetlore.clock import Clock, SystemClock
from streams.stage.base import TopicPartition


class Ledger:
    """Positions and committable offsets, by partition."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._positions: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, tuple[int, float]] = {}

    def allow(self, tp: TopicPartition, position: int, committable: int) -> None:
        """Note that all before `position` is processed, and all before `committable` may be committed."""
        self._positions[tp] = position
        self._pending[tp] = committable
        self._first.setdefault(tp, committable)

    def hold(self, tp: TopicPartition, offset: int, seconds: float) -> None:
        """Commit nothing from `offset` on for so long, whatever is allowed. A commit that was made stays."""
        self._held[tp] = offset, self._clock.monotonic() + seconds

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to process."""
        return dict(self._positions)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Count the processed records that a restart reads again; before the first commit, those of the first batch."""
        return {tp: max(0, at - self._committed.get(tp, self._first[tp])) for tp, at in self._positions.items()}

    def take(self) -> dict[TopicPartition, int]:
        """Take the offsets that have moved since they were last committed."""
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
        """Note that the broker has committed these; a partition forgotten meanwhile may return at another offset."""
        self._committed.update({tp: offset for tp, offset in offsets.items() if tp in self._positions})

    def put_back(self, offsets: dict[TopicPartition, int]) -> None:
        """Try these again, unless another offset is allowed meanwhile: the broker has not committed them."""
        self._pending = {tp: offset for tp, offset in offsets.items() if tp in self._positions} | self._pending

    def forget(self) -> None:
        """Drop all: partitions were assigned anew."""
        self._positions.clear()
        self._first.clear()
        self._pending.clear()
        self._committed.clear()
        self._held.clear()
