"""Serve agents that keep their own sessions (`Fleet(relay=…)`): topics to follow, and events to send.

The relay keeps each key's newest record, of lore the best backed that its memory allows.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError
from starlette.exceptions import HTTPException

from fleetlore.agent.fleet import Fleet
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.kafka.by_relay import LENGTH_BYTES, LORE, Followed, Following, RelayedRecord
from fleetlore.kafka.client import ANSWER_SECONDS, STOP_SECONDS, connected, make_producer
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.limits import Shares
from fleetlore.recall.bound import Backing, Bound, backing_of_item, backing_of_pattern
from fleetlore.relay.callers import MAX_SESSIONS, BufferFull, Caller
from fleetlore.wire import events as names
from fleetlore.wire.decode import json_reader, msgpack_reader
from fleetlore.wire.events import Event
from fleetlore.wire.topics import ADAPTER_TOPICS, TOMBSTONE_SECONDS, topic

__all__ = ["Native", "send_record"]

_ACKS = "adapters.acks"
_LONGEST_WAIT_SECONDS = 60.0
# Approximate size of an answer, which an agent parses in one go.
_ANSWER_BYTES = 512 * 1024
# Below an agent's time-out.
_BEHIND_SECONDS = 8.0
_SPARE = 1024
# Times `replica_mb`: its agents use more tools than one agent.
_REPLICAS = 4
_BACKING = {"patterns": backing_of_pattern, "items": backing_of_item}
# Tombstones of left-out lore in each partition: some 25 MB.
_LEFT_OUT = 100_000


class Native:
    def __init__(self) -> None:
        self._mirrors: dict[tuple[str, tuple[str, ...]], _Mirror] = {}
        # Agents send events again in an outage, which would fill the buffer.
        self._last = Shares[tuple[str, str, str], int](MAX_SESSIONS, "positions")

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._mirrors.values()))

    async def follow(self, fleet: Fleet, body: bytes) -> bytes | AsyncIterator[bytes]:
        asked = msgpack_reader(Following)(body)
        if asked.topics not in (LORE, ADAPTER_TOPICS):
            raise HTTPException(400, f"an agent follows {LORE} or {ADAPTER_TOPICS}, not {asked.topics}")
        key = fleet.tenant, asked.topics
        mirror = self._mirrors.get(key) or self._mirrors.setdefault(key, _Mirror(fleet, asked.topics))
        if not (mirror.follower.connected if asked.wait else await mirror.is_up_to_date()):
            raise HTTPException(503, "no broker answers this relay")
        wait = min(asked.wait, _LONGEST_WAIT_SECONDS)
        if asked.stream:
            return mirror.stream(asked.positions, wait)
        return mirror.answer(await mirror.since(asked.positions, wait) if wait else ())

    def take(self, fleet: Fleet, caller: Caller, event: Event) -> bool:
        """Send an event that its agent has numbered. Return False for a duplicate."""
        key = fleet.tenant, event.agent, event.session
        last = self._last.get(key)
        if last is not None and event.sequence <= last:
            return False
        if not fleet.emitter.emit(event, at_once=_is_news(fleet, event)):
            raise BufferFull
        self._last.put(caller.share, key, event.sequence)
        return True

    async def record(self, fleet: Fleet, caller: Caller, name: str, key: str, value: bytes) -> None:
        if name != _ACKS:
            raise HTTPException(404, f"an agent writes no {name}")
        said = json_reader(dict[str, Any])(value)
        own = f"{said.get('adapter')}/{caller.agent}"
        # The newest record of a key counts.
        if caller.sure and (said.get("agent") != caller.agent or key not in (own, f"{own}/refused")):
            raise HTTPException(403, f"the token is of agent {caller.agent}")
        if not await send_record(fleet, _ACKS, key, value):
            raise HTTPException(503, "the broker has not taken it")


async def send_record(fleet: Fleet, name: str, key: str, value: bytes) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), connected(make_producer(fleet.bootstrap)) as producer:
            await producer.send_and_wait(topic(fleet.tenant, name), value, key=key.encode())
    except (KafkaError, OSError):
        return False
    return True


def _is_news(fleet: Fleet, event: Event) -> bool:
    error = event.data.get(names.ERROR_TYPE), event.data.get(names.ERROR_MESSAGE)
    if event.kind != "outcome" or error == (None, None):
        return False
    failure = failure_of(event.data[names.TOOL], event.data.get(names.ARGUMENTS), *error)
    return not failure.transient and failure.exact not in fleet.replica.index.patterns


class _Mirror:
    """Tombstones replace left-out lore, so that no agent keeps an earlier version."""

    def __init__(self, fleet: Fleet, names: tuple[str, ...]) -> None:
        self._names = {topic(fleet.tenant, name): name for name in names}
        self._parts: dict[str, dict[int, _Part]] = {name: {} for name in names}
        settings, clock = fleet.settings, fleet.clock
        self._clock = clock
        self._bound = Bound(_REPLICAS * settings.replica_mb * 1e6)
        self.follower = Follower(
            fleet.bootstrap,
            tuple(self._names),
            self._take,
            what="what agents follow",
            fetch_wait_ms=settings.fetch_wait_ms,
            outdated=self._forget,
            clock=clock,
        )
        self._changed = asyncio.Event()
        self._asking = asyncio.Lock()
        self._asked = self._answered = 0
        self._up_to_date = False
        self._task = asyncio.create_task(self.follower.run(), name="fleetlore-mirror")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)

    async def is_up_to_date(self) -> bool:
        self._asked += 1
        number = self._asked
        async with self._asking:
            if self._answered < number:
                last = self._asked
                self._up_to_date = await self.follower.caught_up(_BEHIND_SECONDS)
                self._answered = last
            return self._up_to_date

    def answer(self, records: Sequence[RelayedRecord] = ()) -> bytes:
        ends = {name: {number: part.end for number, part in parts.items()} for name, parts in self._parts.items()}
        return msgspec.msgpack.encode(Followed(ends, list(records)))

    async def stream(self, positions: dict[str, dict[int, int]], wait: float) -> AsyncIterator[bytes]:
        clock, found = asyncio.get_running_loop(), self._read(positions)
        end = clock.time() + wait
        while True:
            for each in found:
                positions.setdefault(each.topic, {})[each.partition] = each.offset + 1
            answer = self.answer(found)
            yield len(answer).to_bytes(LENGTH_BYTES) + answer
            if not (found := await self.since(positions, end - clock.time())):
                return

    async def since(self, positions: Mapping[str, Mapping[int, int]], wait: float) -> list[RelayedRecord]:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not (found := self._read(positions)):
                    await self._changed.wait()
        return found

    def _read(self, positions: Mapping[str, Mapping[int, int]]) -> list[RelayedRecord]:
        found, size = [], 0
        for name, parts in self._parts.items():
            for partition, part in parts.items():
                for offset, key, value in part.since(positions.get(name, {}).get(partition, 0)):
                    found.append(RelayedRecord(name, partition, offset, key, value))
                    size += len(key) + len(value or b"")
                    if size >= _ANSWER_BYTES:
                        return found
        return found

    async def _take(self, fetched: Fetched) -> None:
        for each, records in fetched.items():
            name = self._names[each.topic]
            part = self._parts[name].setdefault(each.partition, _Part())
            for record in records:
                part.put(record)
                if name in _BACKING:
                    self._weigh(name, record)
            part.expire(self._clock.now() - TOMBSTONE_SECONDS)
        if fetched:
            self._changed.set()
            self._changed = asyncio.Event()

    def _weigh(self, name: str, record: ConsumerRecord) -> None:
        id = (record.key or b"").decode("latin-1")  # any bytes, and back again
        if record.value is None:
            self._bound.drop(id)
            return
        try:
            backing = _BACKING[name](record.value)
        except ValueError:  # an agent of another release may read it
            backing = Backing("", 0.0, len(record.value))
        for gone in self._bound.take(id, backing):
            for lore in _BACKING:
                for part in self._parts[lore].values():
                    part.leave_out(gone.encode("latin-1"))

    def _forget(self) -> None:
        self._bound.forget_all()
        for parts in self._parts.values():
            parts.clear()


class _Part:
    __slots__ = ("_deleted", "_left_out", "_newest", "_offsets", "_records", "end")

    def __init__(self) -> None:
        self.end = 0
        self._newest: dict[bytes, int] = {}
        self._offsets: list[int] = []
        # A record with a newer one is None.
        self._records: list[tuple[bytes, bytes | None] | None] = []
        self._deleted: deque[tuple[float, bytes, int]] = deque()
        self._left_out: deque[tuple[bytes, int]] = deque()

    def put(self, record: ConsumerRecord) -> None:
        if record.offset < self.end:
            return
        self.end, key = record.offset + 1, record.key or b""
        if (old := self._newest.get(key)) is not None:
            self._records[bisect_left(self._offsets, old)] = None
        self._newest[key] = record.offset
        self._offsets.append(record.offset)
        self._records.append((key, record.value))
        if record.value is None:
            self._deleted.append((record.timestamp / 1000, key, record.offset))
        if len(self._records) > 2 * len(self._newest) + _SPARE:
            kept = [(offset, each) for offset, each in zip(self._offsets, self._records, strict=True) if each]
            self._offsets, self._records = [offset for offset, _ in kept], [each for _, each in kept]
            self._deleted = deque(each for each in self._deleted if self._newest.get(each[1]) == each[2])

    def leave_out(self, key: bytes) -> None:
        offset = self._newest.get(key)
        if offset is None:
            return
        self._records[bisect_left(self._offsets, offset)] = key, None
        self._left_out.append((key, offset))
        if len(self._left_out) > _LEFT_OUT:
            self._remove(*self._left_out.popleft())

    def expire(self, before: float) -> None:
        while self._deleted and self._deleted[0][0] < before:
            _, key, offset = self._deleted.popleft()
            self._remove(key, offset)

    def _remove(self, key: bytes, offset: int) -> None:
        if self._newest.get(key) == offset:
            del self._newest[key]
            self._records[bisect_left(self._offsets, offset)] = None

    def since(self, position: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        for index in range(bisect_left(self._offsets, position), len(self._offsets)):
            if (record := self._records[index]) is not None:
                yield self._offsets[index], *record
