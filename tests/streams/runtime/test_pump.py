"""The pump between aiokafka and Faust, on two brokers and on a consumer of our own.

If one of these fails after an upgrade of Faust or aiokafka, then events would be lost or late: mend
`streams/runtime/pump.py`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka import AIOKafkaProducer, OffsetAndMetadata
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import CommitFailedError, KafkaError, OffsetOutOfRangeError

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import observer
from streams.runtime import pump
from streams.runtime.delivery import Lease
from streams.runtime.pump import Batch, Pump
from streams.stage.base import TopicPartition
from tests.doubles.mock_cluster import Failure, MockCluster, Request

PATIENCE_SECONDS = 240.0


class Member:
    """A member of a group on a real client, and what its owner hears."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        settings = Settings(broker=bootstrap, group=group, session_timeout_seconds=6.0)
        self.pump = Pump(settings, self, Lease(5.0))
        self.feed = self.pump.feed(self, [topic], 0.01)
        self.assigned, self.read = asyncio.Queue[list[int]](), asyncio.Queue[tuple[int, bytes | None]]()

    async def send(self, *, value: Batch) -> None:
        for record in value.records:
            self.read.put_nowait((record.offset, record.value))
        self.feed.free.set()

    async def on_assigned(self, assigned: Any) -> None:
        self.assigned.put_nowait(sorted(tp.partition for tp in assigned))

    async def on_revoked(self) -> None: ...


@asynccontextmanager
async def member(bootstrap: str, topic: str, group: str) -> AsyncIterator[tuple[Member, asyncio.Task[None]]]:
    made = Member(bootstrap, topic, group)
    await made.pump.start()
    running = asyncio.create_task(made.pump.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield made, running
    finally:
        running.cancel()
        await asyncio.wait([running])
        await made.pump.stop()


async def committed(bootstrap: str, topic: str, group: str) -> list[int | None]:
    async with observer(bootstrap, group) as consumer:
        return [await consumer.committed(KafkaPartition(topic, partition)) for partition in (0, 1)]


@pytest.fixture
def cluster(tenant: str) -> Iterator[MockCluster]:
    pytest.importorskip("confluent_kafka", reason="the mock cluster is in the confluent-kafka wheel")
    with MockCluster(brokers=3) as cluster:
        cluster.create_topic(f"fleetlore.{tenant}.events", partitions=1)
        yield cluster


@pytest.mark.long
async def test_records_come_in_once_the_coordinator_says_what_is_committed(cluster: MockCluster, tenant: str) -> None:
    """It takes longer than a request may."""
    topic, sent = f"fleetlore.{tenant}.events", [(number, b"%d" % number) for number in range(3)]
    async with AIOKafkaProducer(bootstrap_servers=cluster.address) as producer:
        for _, value in sent:
            await producer.send_and_wait(topic, value, partition=0)
    cluster.fail_next(Request.OFFSET_FETCH, [Failure.COORDINATOR_LOADING] * 250)  # ten a second or twenty
    async with member(cluster.address, topic, tenant) as (reader, _):
        assert [await reader.read.get() for _ in sent] == sent


@pytest.mark.long
async def test_what_stops_the_client_for_good_is_told(cluster: MockCluster, tenant: str) -> None:
    async with member(cluster.address, f"fleetlore.{tenant}.events", tenant) as (reader, running):
        await reader.assigned.get()
        cluster.fail_next(Request.HEARTBEAT, [Failure.NOT_FORESEEN])
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        assert "heartbeat" in repr(ended)


@pytest.mark.long
async def test_a_partition_that_moved_away_is_its_new_owners_to_commit(
    broker: EmbeddedBroker, make_topics: Any, tenant: str
) -> None:
    topic = f"fleetlore.{tenant}.events"
    await make_topics(broker.address, tenant, "events", partitions=2)
    async with member(broker.address, topic, tenant) as (first, _):
        assert await first.assigned.get() == [0, 1]
        assert await first.pump.commit({TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 5})
        async with member(broker.address, topic, tenant) as (second, _):
            [taken], [left] = await second.assigned.get(), await first.assigned.get()
            assert {left, taken} == {0, 1}
            assert not await first.pump.commit({TopicPartition(topic, taken): 9})
            assert await first.pump.commit({TopicPartition(topic, left): 9})
            assert await committed(broker.address, topic, tenant) == [9 if left == 0 else 5, 9 if left == 1 else 5]


PART, OTHER = KafkaPartition("t", 0), KafkaPartition("t", 1)


class Consumer:
    """A consumer like aiokafka's. A test sets its fetched records, committed offsets and the broker's answers."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.assigned, self.asleep = {PART}, set[Any]()
        self.sought: list[tuple[Any, int]] = []
        self.commits: list[dict[Any, Any]] = []
        self.begins, self.ends, self.polled = {PART: 0, OTHER: 0}, {PART: 9, OTHER: 9}, None
        self.refuses: list[Exception] = []
        self.subscribe, self.highwater = Mock(), Mock(return_value=None)
        self.partitions_for_topic, self.position = Mock(return_value={0, 1}), AsyncMock(return_value=0)
        self.assignment, self.paused = lambda: self.assigned, lambda: self.asleep
        self.last_poll_timestamp = lambda partition: self.polled
        self.beginning_offsets = AsyncMock(side_effect=lambda asked: {each: self.begins[each] for each in asked})
        self.end_offsets = AsyncMock(side_effect=lambda asked: {each: self.ends[each] for each in asked})

    def pause(self, *partitions: Any) -> None:
        self.asleep |= set(partitions)

    def resume(self, *partitions: Any) -> None:
        self.asleep -= set(partitions)

    def seek(self, partition: Any, offset: int) -> None:
        self.sought.append((partition, offset))

    async def commit(self, offsets: dict[Any, Any]) -> None:
        if self.refuses:
            raise self.refuses.pop()
        self.commits.append({each: (at.offset, at.metadata) for each, at in offsets.items()})

    async def getmany(self, **_: Any) -> Any:
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    """A pump of that consumer, and the calls that its owner gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.told = 1000.0, list[Any]()
        self.consumer, self.committed = Consumer(), dict[Any, int]()
        self.refused: list[Exception] = []
        self.lease = Lease(8.0, lambda: self.now)
        settings = Settings(broker="nowhere:1", group="g", session_timeout_seconds=12.0)
        self.pump = Pump(settings, self, self.lease)
        self.channel = asyncio.Queue[Any]()
        self.pump._consumer = self.consumer
        self.feed = self.pump.feed(SimpleNamespace(send=self.send), ["t"], 0.0)

        @asynccontextmanager
        async def connected(client: Any) -> AsyncIterator[Any]:
            yield client

        async def committed_offsets(admin: Any, group: str, partitions: Any) -> dict[Any, OffsetAndMetadata]:
            if self.refused:
                raise self.refused.pop()
            return {each: OffsetAndMetadata(self.committed.get(each, -1), "") for each in partitions}

        for name, value in {
            "connected": connected,
            "make_admin": lambda cluster: None,
            "committed_offsets": committed_offsets,
            "backoff": lambda: repeat(0.0),
        }.items():
            monkeypatch.setattr(pump, name, value)

    async def send(self, *, value: Batch) -> None:
        await self.channel.put(value)

    async def on_assigned(self, assigned: Any) -> None:
        self.told.append(("assigned", sorted(tp.partition for tp in assigned)))

    async def on_revoked(self) -> None:
        self.told.append("revoked")

    def on_expired(self, tp: TopicPartition, records: int) -> None:
        self.told.append(("expired", tp, records))

    async def on_truncated(self, lost: Any) -> None:
        self.told.append(("truncated", lost))
        await self.pump.read_anew(lost)

    async def rebalance(self) -> None:
        await self.pump.on_partitions_revoked(set())
        self.pump.on_partitions_assigned(self.consumer.assigned)

    async def batch(self) -> list[int]:
        batch = await self.channel.get()
        assert batch.generation == self.pump.generation
        self.feed.free.set()
        return [record.offset for record in batch.records]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(monkeypatch)
    await world.rebalance()
    world.running = asyncio.create_task(world.pump.run())
    await turns()
    yield world
    world.running.cancel()
    await asyncio.wait([world.running])


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def records(*offsets: int, value: bytes = b"x") -> list[Any]:
    return [
        SimpleNamespace(topic="t", partition=0, offset=each, key=None, value=value, headers=(), timestamp=5000)
        for each in offsets
    ]


async def test_it_begins_where_the_group_had_committed_or_at_the_beginning(world: World) -> None:
    assert world.consumer.sought == [(PART, 0)] and world.told == [("assigned", [0])]
    world.consumer.assigned, world.committed[PART], world.consumer.begins[OTHER] = {PART, OTHER}, 5, 2
    world.refused = [KafkaError("not said"), TimeoutError()]
    world.consumer.sought.clear()
    await world.rebalance()
    world.consumer.answers.put_nowait({PART: records(0)})  # of a fetch that waited meanwhile
    await turns()
    assert sorted(world.consumer.sought) == [(PART, 5), (OTHER, 2)] and not world.refused
    assert world.told[1:] == ["revoked", ("assigned", [0, 1])]
    world.consumer.answers.put_nowait({PART: records(5, 6)})
    assert await world.batch() == [5, 6], "what that fetch brought is not handed over"


async def test_a_topic_that_lost_its_commits_was_made_anew(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.consumer.commits and not caplog.records
    await world.rebalance()
    world.consumer.answers.put_nowait({})
    await turns()
    assert "t[0]: the topic was made anew" in caplog.text and world.consumer.sought[1:] == [(PART, 0)]


async def test_what_waits_when_partitions_move_is_dropped(world: World) -> None:
    world.consumer.answers.put_nowait({PART: records(0)})
    await turns()
    world.consumer.answers.put_nowait({PART: records(1, 2)})
    await turns()
    assert world.feed.places == 2, "the agent has not asked for more"
    await world.rebalance()
    stale = await world.channel.get()
    assert stale.generation < world.pump.generation and world.feed.places == 0


async def test_what_waits_comes_in_one_batch_that_is_not_too_large(world: World) -> None:
    world.consumer.answers.put_nowait({PART: records(0)})
    await turns()
    world.consumer.answers.put_nowait({PART: records(*range(1, 700))})
    await turns()
    assert [len(await world.batch()) for _ in range(3)] == [1, 512, 187]


async def test_a_full_feed_pauses_its_partitions_until_it_is_drained(world: World) -> None:
    world.consumer.answers.put_nowait({PART: records(0)})
    await turns()
    world.consumer.answers.put_nowait({PART: records(*range(1, 62), value=bytes(256 * 1024))})
    await turns()
    assert world.consumer.asleep == {PART} and world.pump.paused() == 1
    assert await world.batch() == [0]
    assert len(await world.batch()) == 31 and world.consumer.asleep == {PART}
    await turns()
    assert not world.consumer.asleep
    world.pump.pause({"t"})
    assert len(await world.batch()) == 30
    await turns()
    assert world.consumer.asleep == {PART} and world.pump.paused() == 0, "a topic that was stopped stays so"


async def test_the_lease_is_renewed_by_commits_that_the_coordinator_takes(world: World) -> None:
    assert world.consumer.commits == [{PART: (0, "2")}] and world.lease.holds
    world.now += 1.0
    assert await world.pump.commit({}) and len(world.consumer.commits) == 1, "it was asked a moment ago"
    world.now += 4.0
    assert await world.pump.commit({}) and world.consumer.commits[1:] == [{PART: (0, "2")}]
    assert await world.pump.commit({TopicPartition("t", 0): 4, TopicPartition("t", 1): 7})
    world.now += 7.0
    assert world.lease.holds
    assert await world.pump.commit({}) and world.consumer.commits[2:] == [{PART: (4, "2")}] * 2
    world.now += 7.0
    world.consumer.refuses = [CommitFailedError()]
    assert not await world.pump.commit({})
    world.now += 1.5
    assert not world.lease.holds, "somebody else may have taken over"


async def test_nothing_is_committed_between_a_revocation_and_the_next_assignment(world: World) -> None:
    """It would be refused, and the client would give up the membership that it is about to get."""
    before = len(world.consumer.commits)
    await world.pump.on_partitions_revoked({PART})
    assert not await world.pump.commit({TopicPartition("t", 0): 4})
    world.now += 60.0
    assert not await world.pump.commit({}) and len(world.consumer.commits) == before


async def test_an_owner_that_fails_at_a_revocation_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka logs what its listener raises, and goes on."""
    monkeypatch.setattr(world, "on_revoked", AsyncMock(side_effect=ValueError("it fails")))
    await world.pump.on_partitions_revoked({PART})
    world.consumer.answers.put_nowait({})
    with pytest.raises(ValueError, match="it fails"):
        await world.running


async def test_records_that_retention_deleted_are_counted_and_passed_over(world: World) -> None:
    world.consumer.begins[PART] = 7
    world.consumer.sought.clear()
    world.consumer.answers.put_nowait(OffsetOutOfRangeError({PART: 4}))
    await turns()
    assert world.told[1:] == [("expired", PART, 3)] and world.consumer.sought == [(PART, 7)]


async def test_a_partition_that_ends_before_what_was_read_is_read_anew(world: World) -> None:
    world.consumer.begins[PART], world.consumer.ends[PART] = 2, 9
    world.consumer.answers.put_nowait(OffsetOutOfRangeError({PART: 21}))
    await turns()
    assert world.told[1:] == [("truncated", {PART: 12})]
    assert world.consumer.commits[-1] == {PART: (2, "2")} and world.consumer.subscribe.call_count == 1


async def test_a_client_that_fetches_no_more_what_another_gets_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead task of aiokafka ends no other task."""

    @asynccontextmanager
    async def other(cluster: Any) -> AsyncIterator[Any]:
        yield None

    async def ends(consumer: Any, partitions: Any) -> dict[Any, int]:
        return dict.fromkeys(partitions, 9)

    monkeypatch.setattr(pump, "observer", other)
    monkeypatch.setattr(pump, "end_offsets", ends)
    assert await world.pump.lags({}) == {PART: 0}
    monkeypatch.setattr(world.pump, "_begun_at", time.time() - 40)
    world.consumer.polled = int(1000 * (time.time() - 45))
    assert await world.pump.lags({}) == {PART: 0}, "a request may take so long"
    monkeypatch.setattr(world.pump, "_begun_at", time.time() - 80)
    with pytest.raises(BrokerUnavailable, match=r"stopped reading t\[0\]"):
        await world.pump.lags({})
    monkeypatch.setattr(world.pump, "_fetched", {PART: 9})
    assert await world.pump.lags({TopicPartition("t", 0): 9}) == {PART: 0}


async def test_what_is_fetched_and_waits_counts_as_lag(world: World) -> None:
    world.consumer.answers.put_nowait({PART: records(0, 1, 2)})
    assert await world.batch() == [0, 1, 2]
    world.consumer.asleep = {PART}
    assert await world.pump.lags({}) == {PART: 9}
    assert await world.pump.lags({TopicPartition("t", 0): 3}) == {PART: 6}
