"""Keep the newest record of each key of a tenant's compacted topics, as the log has it, for the agents that follow them
here. Nobody reads where no agent follows.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from aiokafka import ConsumerRecord

from fleetlore.agent.fleet import Fleet
from fleetlore.kafka.client import STOP_SECONDS
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.relayed import RelayedRecord
from fleetlore.wire.topics import topic

__all__ = ["Mirror"]

# Of an answer, about: an agent takes it apart in one go.
_ANSWER_BYTES = 512 * 1024
# Less than an agent waits for an answer.
_BEHIND_SECONDS = 8.0
_SPARE = 1024


class Mirror:
    """Some topics of one tenant, tombstones included: an agent that was away has to hear of them."""

    def __init__(self, fleet: Fleet, names: tuple[str, ...]) -> None:
        self._names = {topic(fleet.tenant, name): name for name in names}
        self._parts: dict[str, dict[int, _Part]] = {name: {} for name in names}
        settings, clock = fleet.settings, fleet.clock
        self._follower = Follower(
            settings.cluster,
            tuple(self._names),
            self._take,
            what="what agents follow",
            fetch_wait_ms=settings.fetch_wait_ms,
            outdated=self._forget,
            clock=clock,
        )
        self._changed = asyncio.Event()
        # Those who ask at once share one question to the broker, that began after they asked.
        self._asking = asyncio.Lock()
        self._asked = self._answered = 0
        self._up_to_date = False
        self._task = asyncio.create_task(self._follower.run(), name="fleetlore-mirror")

    async def close(self) -> None:
        """Follow no more."""
        self._task.cancel()
        await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)

    async def is_up_to_date(self) -> bool:
        """Wait until all that the topics hold at this moment is here; False where that takes too long."""
        self._asked += 1
        number = self._asked
        async with self._asking:
            if self._answered < number:
                last = self._asked
                self._up_to_date = await self._follower.caught_up(_BEHIND_SECONDS)
                self._answered = last
            return self._up_to_date

    def ends(self) -> dict[str, dict[int, int]]:
        """By topic and partition the offset after the last record."""
        return {name: {partition: part.end for partition, part in parts.items()} for name, parts in self._parts.items()}

    async def since(self, positions: Mapping[str, Mapping[int, int]], wait: float) -> list[RelayedRecord] | None:
        """Records from these positions on, as soon as there are some; None where no broker answers."""
        while not (found := self._read(positions)):
            try:
                await asyncio.wait_for(self._changed.wait(), wait)
            except TimeoutError:
                return [] if self._follower.connected else None
        return found

    def _read(self, positions: Mapping[str, Mapping[int, int]]) -> list[RelayedRecord]:
        found, size = [], 0
        for name, parts in self._parts.items():
            for partition, part in parts.items():
                for offset, key, value in part.since(positions.get(name, {}).get(partition, 0)):
                    found.append(RelayedRecord(name, partition, offset, key, value))
                    size += len(value or b"")
                    if size >= _ANSWER_BYTES:
                        return found
        return found

    async def _take(self, fetched: Fetched) -> None:
        for each, records in fetched.items():
            part = self._parts[self._names[each.topic]].setdefault(each.partition, _Part())
            for record in records:
                part.put(record)
        if fetched:
            self._changed.set()
            self._changed = asyncio.Event()

    def _forget(self) -> None:
        for parts in self._parts.values():
            parts.clear()


class _Part:
    """One partition. `end`: the offset after its last record."""

    __slots__ = ("_newest", "_offsets", "_records", "end")

    def __init__(self) -> None:
        self.end = 0
        self._newest: dict[bytes, int] = {}
        self._offsets: list[int] = []
        # None where a newer one of the key has come.
        self._records: list[tuple[bytes, bytes | None] | None] = []

    def put(self, record: ConsumerRecord) -> None:
        """Take the next record; one that comes again is known."""
        if record.offset < self.end:
            return
        self.end, key = record.offset + 1, record.key or b""
        if (old := self._newest.get(key)) is not None:
            self._records[bisect_left(self._offsets, old)] = None
        self._newest[key] = record.offset
        self._offsets.append(record.offset)
        self._records.append((key, record.value))
        if len(self._records) > 2 * len(self._newest) + _SPARE:
            kept = [(offset, each) for offset, each in zip(self._offsets, self._records, strict=True) if each]
            self._offsets, self._records = [offset for offset, _ in kept], [each for _, each in kept]

    def since(self, position: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Offset, key and value of the records from this one on."""
        for index in range(bisect_left(self._offsets, position), len(self._offsets)):
            if (record := self._records[index]) is not None:
                yield self._offsets[index], *record
