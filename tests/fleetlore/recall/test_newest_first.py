"""An agent that begins with the newest records comes to know what one that reads all of them in order knows."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Any

import pytest
from aiokafka import TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlore.kafka import read
from fleetlore.recall.bound import backing_of_item, backing_of_pattern
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import Decision, MemoryItem, Pattern
from fleetlore.wire.topics import topic
from tests.build import memory_item
from tests.doubles.memory_log import InMemoryLog, Record
from tests.waiting import until

TENANT = "acme"
NAMES = ("patterns", "items", "decisions")
TOPICS = [topic(TENANT, name) for name in NAMES]
PARTITIONS = 2
KEYS = 12


class LogConsumer:
    """An `AIOKafkaConsumer` of no group on a log in memory. It fetches from one partition at a time."""

    def __init__(self, log: InMemoryLog, topics: Iterable[str], random: Random) -> None:
        self._log, self._random = log, random
        self._positions = {TopicPartition(name, number): 0 for name in topics for number in range(PARTITIONS)}

    def assign(self, parts: Iterable[TopicPartition]) -> None:
        self._positions = dict.fromkeys(parts, 0)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def seek(self, part: TopicPartition, offset: int) -> None:
        self._positions[part] = offset

    async def end_offsets(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {part: self._log.end_offset(*part) for part in parts}

    def last_stable_offset(self, part: TopicPartition) -> int:
        return self._log.end_offset(*part)

    def last_poll_timestamp(self, part: TopicPartition) -> int:
        return 0

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Record]]:
        await asyncio.sleep(0)
        unread = [part for part, position in self._positions.items() if self._log.read(*part, position)]
        if not unread:
            return {}
        part = self._random.choice(unread)
        records = self._log.read(*part, self._positions[part], self._random.randint(1, 4))
        self._positions[part] = records[-1].offset + 1
        return {part: records}


class SmallReplica(LoreReplica):
    """It takes ten records for many."""

    newest_records, awaited_records, pause_seconds = 8, 2, 0.0


def value_of(name: str, id: str, version: int, agents: int) -> bytes:
    if name == "patterns":
        counts = {"failures": version, "calls": version, "agents": agents, "sessions": 9}
        return Pattern(id=id, level="exact", tenant=TENANT, tool="sql", call="call", **counts).to_json()
    if name == "items":
        counts = {"agents": agents, "support": 9, "last_seen": float(version)}
        return memory_item(id, tenant=TENANT, pattern="class", **counts).to_json()
    return Decision(kind="pattern", id=id, on=bool(agents % 2), by="operator", why="wrong", time=1.0).to_json()


# Number of the topic and of the key; agents behind the entry, where 0 is a tombstone.
CHANGE = st.tuples(st.integers(0, 2), st.integers(0, KEYS - 1), st.integers(0, 5))


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = InMemoryLog(PARTITIONS)
        for name in TOPICS:
            self.log.create_topic(name, PARTITIONS)
        self._version = 0

    def change(self, number: int, key: int, agents: int) -> None:
        self._version += 1
        id = f"{'pip'[number]}{key}"  # a decision is about a pattern
        value = value_of(NAMES[number], id, self._version, agents) if agents or number == 2 else None
        self.log.append(TOPICS[number], value, key=id.encode())

    def compact(self) -> None:
        """Compact all partitions but their last record, which a broker never takes."""
        for number, name in enumerate(TOPICS):
            self.log.compact(name)
            for partition in range(PARTITIONS):
                id = f"last{partition}"
                self.log.append(name, value_of(NAMES[number], id, 0, 1), key=id.encode(), partition=partition)

    def gone(self) -> set[str]:
        """Ids whose newest record is a tombstone."""
        newest = {each.key: each.value for name in TOPICS[:2] for each in self.log.read_all(name)}
        return {key.decode() for key, value in newest.items() if value is None}

    def consumer(self, _bootstrap: object, *topics: str, **_: Any) -> LogConsumer:
        return LogConsumer(self.log, topics, self.random)

    def read_in_order(self) -> LoreReplica:
        replica = LoreReplica("nowhere:1", TENANT)
        for name in TOPICS:
            for each in self.log.read_all(name):
                replica._apply(name, each.key, each.value)
        return replica


@asynccontextmanager
async def connected(consumer: LogConsumer) -> AsyncIterator[LogConsumer]:
    yield consumer


def known(replica: LoreReplica) -> dict[str, Pattern | MemoryItem]:
    return {**replica.index.patterns, **replica.index.items}


def weight(entry: Pattern | MemoryItem) -> int:
    return (backing_of_pattern if isinstance(entry, Pattern) else backing_of_item)(entry.to_json()).bytes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(CHANGE, max_size=60),
    compacted=st.integers(0, 60),
    live=st.lists(CHANGE, max_size=12),
    entries=st.sampled_from([3, 10, 1000, inf]),
    seed=st.integers(0, 2**32),
)
def test_it_ends_with_what_a_reader_from_the_beginning_knows(
    monkeypatch: pytest.MonkeyPatch,
    before: list[tuple[int, int, int]],
    compacted: int,
    live: list[tuple[int, int, int]],
    entries: float,
    seed: int,
) -> None:
    world = World(seed)
    for number, change in enumerate(before):
        world.change(*change)
        if number == compacted:
            world.compact()
    monkeypatch.setattr(read, "make_consumer", world.consumer)
    monkeypatch.setattr(read, "connected", connected)
    monkeypatch.setattr(read, "observer", lambda _: connected(world.consumer("")))
    asyncio.run(_follow(world, live, entries * 2_500.0))


async def _follow(world: World, live: list[tuple[int, int, int]], most_bytes: float) -> None:
    replica = SmallReplica("nowhere:1", TENANT, clock=FakeClock(), most_bytes=most_bytes)
    await replica.start()
    gone = world.gone()
    for change in live:
        for _ in range(world.random.randint(0, 20)):
            await asyncio.sleep(0)
            assert not gone & known(replica).keys(), "it shows what a later record ends"
        if world.random.random() < 0.2:
            await replica.close()
            await replica.start()
        world.change(*change)
        gone &= world.gone()
    assert await replica.caught_up(120)
    await until(lambda: not replica._older)
    expected, found = known(world.read_in_order()), known(replica)
    await replica.close()
    if most_bytes > 1e6:
        assert found == expected
    else:
        assert found.items() <= expected.items(), "it holds an older version"
        assert sum(map(weight, found.values())) <= most_bytes
