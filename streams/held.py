"""What a stage holds back, so that a state that changes with every batch is written once for many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fleetlore.clock import Clock
from streams.stage import Record, TopicPartition

V = TypeVar("V")
Key = tuple[str, str]  # tenant, id


class Held(Generic[V]):
    """Changes that are written together; no commit passes the first record whose change waits.

    What a busy state costs then depends on the time and not on how often it changes.

    Args:
        seconds: how long a change waits at most while batches come.
        most: changes that wait; a batch of a replay makes more, and they are written as they come.

    Attributes:
        waiting: by tenant and id.
    """

    def __init__(self, clock: Clock, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._uncovered: dict[TopicPartition, int] = {}
        self._written = clock.monotonic()
        self.waiting: dict[Key, V] = {}

    def due(self, batch: Sequence[Record]) -> bool:
        """Whether all that waits, the changes of this batch among it, is to be written now. Ask once for every batch."""
        if not self.waiting:
            self._uncovered.clear()  # nothing of it was new
            return False
        for record in batch:
            self._uncovered.setdefault(record.tp, record.offset)
        late = self._clock.monotonic() - self._written >= self._seconds
        return late or not batch or len(self.waiting) > self._most

    def written(self) -> None:
        """All that waited is among the effects of this batch."""
        self.waiting.clear()
        self._uncovered.clear()
        self._written = self._clock.monotonic()

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """As of a stage."""
        return min(self._uncovered.get(tp, next_offset), next_offset)

    def forget(self) -> None:
        """As of a stage."""
        self.waiting.clear()
        self._uncovered.clear()
