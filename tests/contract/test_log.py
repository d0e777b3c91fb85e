"""The in-memory double and a real broker have the same properties of a log that fleetlore relies on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import CommitFailedError, MessageSizeTooLargeError

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.client import connected, make_admin
from fleetlore.wire.topics import MAX_MESSAGE_BYTES
from tests.doubles.memory_log import InMemoryLog, Record


class InMemory:
    """The log in memory, whose methods are awaited as those of a broker are."""

    def __init__(self) -> None:
        self.log = InMemoryLog()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.log, name)

        async def awaited(*arguments: Any, **options: Any) -> Any:
            return method(*arguments, **options)

        return awaited

    async def join(self, group: str, topic: str) -> InMemoryMember:
        return InMemoryMember(self.log, group, topic)


class InMemoryMember:
    def __init__(self, log: InMemoryLog, group: str, topic: str) -> None:
        self.log, self.group, self.topic = log, group, topic
        self.generation = log.join(group)

    async def commit(self, partition: int, offset: int) -> None:
        self.log.commit(self.group, self.topic, partition, offset, self.generation)


class Broker:
    """A real broker, with the methods of the log in memory."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", max_request_size=4 * MAX_MESSAGE_BYTES)
        self.members: list[BrokerMember] = []

    async def create_topic(self, topic: str, partitions: int) -> None:
        async with connected(make_admin(self.address)) as admin:
            await admin.create_topics([NewTopic(topic, partitions, 1)])

    async def append(self, topic: str, value: bytes | None, **options: Any) -> Any:
        return await self.producer.send_and_wait(topic, value, **{**options, "headers": options.get("headers", [])})

    async def read(self, topic: str, partition: int, offset: int = 0) -> list[Record]:
        async with self._at(topic, partition, fetch_max_wait_ms=50, auto_offset_reset="none") as (consumer, part):
            end = (await consumer.end_offsets([part]))[part]
            consumer.seek(part, offset)
            records: list[Record] = []
            while await consumer.position(part) < end:
                for each in (await consumer.getmany(part, timeout_ms=200)).get(part, []):
                    records.append(Record(*part, each.offset, each.key, each.value, tuple(each.headers)))
            return records

    async def end_offset(self, topic: str, partition: int) -> int:
        async with self._at(topic, partition) as (consumer, part):
            return int((await consumer.end_offsets([part]))[part])

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        async with self._at(topic, partition, group) as (consumer, part):
            await consumer.commit({part: offset})

    async def committed(self, group: str, topic: str, partition: int) -> Any:
        async with self._at(topic, partition, group) as (consumer, part):
            return await consumer.committed(part)

    async def join(self, group: str, topic: str) -> BrokerMember:
        """The members before go silent, as a process that is stopped, until their sessions are over."""
        for member in self.members:
            await member.consumer._coordinator._stop_heartbeat_task()
        member = BrokerMember(self.address, group, topic)
        self.members.append(member)
        await member.consumer.start()
        while not member.consumer.assignment():
            await member.consumer.getmany(timeout_ms=50)
        return member

    @asynccontextmanager
    async def _at(self, topic: str, partition: int, group: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """A consumer with one assigned partition. It commits without joining the group."""
        part = TopicPartition(topic, partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False, **options)
        consumer.assign([part])
        async with connected(consumer):
            yield consumer, part


class BrokerMember:
    def __init__(self, address: str, group: str, topic: str) -> None:
        self.topic = topic
        self.consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=address, group_id=group, enable_auto_commit=False, session_timeout_ms=6_000
        )

    async def commit(self, partition: int, offset: int) -> None:
        await self.consumer.commit({TopicPartition(self.topic, partition): offset})


Log = InMemory | Broker


def place(appended: Any) -> tuple[int, int]:
    return appended.partition, appended.offset


@pytest.fixture(params=["memory", "tansu"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[Log]:
    if request.param == "memory":
        yield InMemory()
        return
    broker: EmbeddedBroker = request.getfixturevalue("broker")
    real = Broker(broker.address)
    await real.producer.start()
    try:
        yield real
    finally:
        for client in (real.producer, *(member.consumer for member in real.members)):
            await client.stop()
        await asyncio.sleep(0)


@pytest.fixture
def faithful(log: Log, pytestconfig: pytest.Config) -> Log:
    """A log with limits: the one in memory, and Apache Kafka with `--kafka`."""
    if isinstance(log, Broker) and not pytestconfig.getoption("--kafka"):
        pytest.skip("tansu takes records of any size")
    return log


@pytest.fixture
async def name(log: Log) -> str:
    """A topic of three partitions."""
    name = f"contract-{uuid.uuid4().hex}"
    await log.create_topic(name, 3)
    return name


async def test_a_partition_keeps_the_order_of_its_records_and_is_read_from_any_offset(log: Log, name: str) -> None:
    assert await log.end_offset(name, 1) == 0
    offsets = [place(await log.append(name, b"%d" % n, partition=1)) for n in range(5)]
    assert offsets == [(1, n) for n in range(5)] and await log.end_offset(name, 1) == 5
    assert [record.value for record in await log.read(name, 1)] == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.offset for record in await log.read(name, 1, 2)] == [2, 3, 4]
    assert await log.read(name, 1, 5) == await log.read(name, 0) == []


async def test_key_headers_and_tombstones_come_back_unchanged(log: Log, name: str) -> None:
    await log.append(name, b"v", key=b"k", partition=0, headers=[("a", b"1"), ("a", b"\xff"), ("a", None)])
    await log.append(name, None, key=b"k", partition=0)
    first, second = await log.read(name, 0)
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("a", b"1"), ("a", b"\xff"), ("a", None)))
    assert (second.key, second.value, second.headers) == (b"k", None, ())


async def test_the_same_key_goes_to_the_same_partition_on_every_log(log: Log, name: str) -> None:
    keys, reference = (b"a", b"session-1", b"session-2", b"session-1"), InMemoryLog(3)
    partitions = [(await log.append(name, b"v", key=key)).partition for key in keys]
    assert partitions == [reference.append("x", b"v", key=key).partition for key in keys]


async def test_commits_belong_to_a_group_and_a_partition(log: Log, name: str) -> None:
    for _ in range(3):
        await log.append(name, b"v", partition=0)
    group, other = f"g{uuid.uuid4().hex}", f"g{uuid.uuid4().hex}"
    assert await log.committed(group, name, 0) is None
    await log.commit(group, name, 0, 3)
    assert await log.committed(group, name, 0) == 3
    await log.commit(group, name, 0, 1)
    assert await log.committed(group, name, 0) == 1
    assert await log.committed(other, name, 0) is None
    assert await log.committed(group, name, 1) is None


@pytest.mark.long
async def test_who_was_replaced_in_a_group_commits_nothing(log: Log, name: str) -> None:
    for _ in range(3):
        await log.append(name, b"v", partition=0)
    group = f"g{uuid.uuid4().hex}"
    first = await log.join(group, name)
    await first.commit(0, 1)
    second = await log.join(group, name)
    await second.commit(0, 2)
    with pytest.raises(CommitFailedError):
        await first.commit(0, 3)
    assert await log.committed(group, name, 0) == 2


async def test_a_record_too_large_is_refused_and_takes_no_offset(faithful: Log, name: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await faithful.append(name, b"x" * (MAX_MESSAGE_BYTES + 1), partition=0)
    assert place(await faithful.append(name, b"x" * (MAX_MESSAGE_BYTES - 1000), partition=0)) == (0, 0)
