"""What a stage holds back, so that a state that changes with every batch is written once for many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fleetlore.clock import Clock
from streams.stage.base import Record, TopicPartition

V = TypeVar("V")
Key = tuple[str, str]  # tenant, id


class WriteBuffer(Generic[V]):
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
        self._under_way: list[tuple[dict[Key, V], dict[TopicPartition, int]]] = []  # and what of the log it covers
        self.waiting: dict[Key, V] = {}

    def __bool__(self) -> bool:
        """Whether anything waits or is being written."""
        return bool(self.waiting or self._under_way)

    def newest(self, key: Key) -> V | None:
        """What waits or is being written: newer than what the store has."""
        value = self.waiting.get(key)
        if value is None and self._under_way:
            value = next((values[key] for values in self._values_under_way() if key in values), None)
        return value

    def drop(self) -> None:
        """The store is another one: what waits is not for it, and what is being written is not in it."""
        for values in (self.waiting, *self._values_under_way()):
            values.clear()

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

    def written_behind(self) -> Callable[[], None]:
        """As `written`, but the next batches do not wait for it. To be called once it is acknowledged: until then it is covered."""
        write = dict(self.waiting), dict(self._uncovered)
        self._under_way.append(write)
        self.written()

        def acknowledged() -> None:
            self._under_way = [each for each in self._under_way if each is not write]

        return acknowledged

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """As of a stage."""
        uncovered = (self._uncovered, *(offsets for _, offsets in self._under_way))
        return min(next_offset, *(offsets.get(tp, next_offset) for offsets in uncovered))

    def _values_under_way(self) -> list[dict[Key, V]]:
        return [values for values, _ in reversed(self._under_way)]

    def forget(self) -> None:
        """As of a stage."""
        self.waiting.clear()
        self._uncovered.clear()
        self._under_way.clear()
