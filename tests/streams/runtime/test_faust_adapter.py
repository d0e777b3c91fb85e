"""The adapter to Faust, on two brokers: the private parts of Faust that it uses still do what we rely on.

If one of these fails after an upgrade of Faust or aiokafka, then events would be lost or late: mend
`streams/runtime/faust_adapter.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CommitFailedError, IllegalGenerationError, IllegalStateError
from faust.transport.consumer import Consumer as BaseConsumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from mode import Service
from mode.utils.queues import FlowControlEvent
from mode.utils.trees import Node

from fleetlore.kafka.client import connected, make_admin
from fleetlore.kafka.read import observer
from streams.embedded.broker import EmbeddedBroker
from streams.runtime.faust_adapter import Buffer, batches, expired, failure
from streams.runtime.faust_consumer import FleetConsumer, FleetConsumerThread
from streams.stage.base import Record, TopicPartition
from tests.doubles.mock_cluster import Failure, MockCluster, Request

pytestmark = pytest.mark.timeout(300)

SCRIPT = Path(__file__).with_name("adapter_worker.py")
PATIENCE_SECONDS = 100.0
FETCH_WAIT_MS = 37
BUFFER_PLACES = 64  # as in adapter_worker.py, of 16 KiB each
LARGE = 256 * 1024  # bytes of a record as an emitter fills it at most
LARGE_PLACES = 17


class AdapterWorker:
    """`adapter_worker.py` as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.facts: dict[str, Any] = {}

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
        assert line, "the worker ended"
        return dict(json.loads(line))

    async def records(self, count: int) -> list[tuple[int, str]]:
        """The next records: (offset, value)."""
        found: list[tuple[int, str]] = []
        while len(found) < count:
            line = await self.line()
            if "offset" in line:
                found.append((line["offset"], line["value"]))
            else:
                self.facts |= line
        return found

    async def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        await self._process.stdin.drain()

    async def answer(self, field: str) -> dict[str, Any]:
        """The next line with that field; those before it are facts."""
        while field not in (line := await self.line()):
            self.facts |= line
        return line

    async def commit(self, offset: int, partition: int = 0) -> bool:
        await self.tell(f"commit {partition} {offset}")
        return bool((await self.answer("committed"))["committed"])

    async def state(self) -> dict[str, Any]:
        await self.tell("state")
        return await self.answer("paused")

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def adapter_worker(bootstrap: str, topic: str, group: str) -> AsyncIterator[AdapterWorker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        bootstrap,
        topic,
        group,
        str(FETCH_WAIT_MS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=SCRIPT.parents[2],
    )
    worker = AdapterWorker(process)
    try:
        yield worker
    finally:
        await worker.kill()


async def committed(bootstrap: str, topic: str, group: str, partition: int = 0) -> int | None:
    async with observer(bootstrap, group) as consumer:
        offset: int | None = await consumer.committed(KafkaPartition(topic, partition))
        return offset


async def produce(bootstrap: str, topic: str, numbers: range, size: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            await producer.send_and_wait(topic, str(number).encode().ljust(size), partition=0)


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["tansu", "librdkafka's mock"])
async def test_offsets_are_committed_as_told_and_a_killed_worker_resumes_there(
    cluster: str, request: pytest.FixtureRequest, make_topics: Any, tenant: str
) -> None:
    if cluster == "tansu":
        bootstrap = request.getfixturevalue("broker").address
        await make_topics(bootstrap, tenant, "events", partitions=1)
    else:
        bootstrap = request.getfixturevalue("mock_cluster")
    topic, group = f"fleetlore.{tenant}.events", f"adapter-{uuid.uuid4().hex[:8]}"
    await produce(bootstrap, topic, range(20))

    async with adapter_worker(bootstrap, topic, group) as worker:
        assert await worker.records(20) == [(number, str(number)) for number in range(20)]
        assert worker.facts["fetch_wait_ms"] == FETCH_WAIT_MS
        # A second round through the stream: Faust's own commit (every 0.1 s) has had its chance when it is through.
        for start in range(20, 26):
            await produce(bootstrap, topic, range(start, start + 1))
            assert await worker.records(1) == [(start, str(start))]
            await asyncio.sleep(0.1)
        assert not await committed(bootstrap, topic, group), "Faust has committed by itself"
        assert await worker.commit(7)
        assert await committed(bootstrap, topic, group) == 7
        assert await worker.commit(12)
        await produce(bootstrap, topic, range(26, 27))
        assert await worker.records(1) == [(26, "26")]
        assert await committed(bootstrap, topic, group) == 12
        await worker.kill()

    async with adapter_worker(bootstrap, topic, group) as worker:
        assert await worker.records(15) == [(number, str(number)) for number in range(12, 27)]
        assert await committed(bootstrap, topic, group) == 12


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    pytest.importorskip("confluent_kafka", reason="the mock cluster is in the confluent-kafka wheel")
    with MockCluster(brokers=3) as cluster:
        yield cluster


@pytest.mark.long
async def test_commits_reach_a_cluster_in_trouble(cluster: MockCluster, tenant: str) -> None:
    """Requests fail, a coordinator moves, another goes down, a leader moves: nothing is read twice."""
    topic, group = f"fleetlore.{tenant}.events", tenant
    cluster.create_topic(topic, partitions=1, replication=3)
    cluster.move_leader(topic, 0, 1)
    cluster.move_coordinator(group, 2)
    await produce(cluster.address, topic, range(10))
    async with adapter_worker(cluster.address, topic, group) as worker:
        assert await worker.records(10) == [(number, str(number)) for number in range(10)]
        cluster.fail_next(
            Request.OFFSET_COMMIT,
            [Failure.NOT_COORDINATOR, Failure.COORDINATOR_LOADING, Failure.COORDINATOR_NOT_AVAILABLE],
        )
        assert await worker.commit(4)
        cluster.move_coordinator(group, 3)
        assert await worker.commit(6)
        cluster.fail_next(Request.FETCH, [Failure.NOT_LEADER, Failure.REQUEST_TIMED_OUT])
        cluster.move_leader(topic, 0, 2)
        cluster.down(1)
        await produce(cluster.address, topic, range(10, 15))
        assert await worker.records(5) == [(number, str(number)) for number in range(10, 15)]
        cluster.up(1)
        assert await worker.commit(12)
        assert await committed(cluster.address, topic, group) == 12
        async with connected(make_admin(cluster.address)) as admin:
            part = KafkaPartition(topic, 0)
            [(_, commit)] = (await admin.list_consumer_group_offsets(group, partitions=[part])).items()
        assert commit.metadata == "1", "it says how many partitions the topic had"
        await worker.kill()
    async with adapter_worker(cluster.address, topic, group) as worker:
        assert await worker.records(3) == [(number, str(number)) for number in range(12, 15)]


@pytest.mark.long
async def test_records_come_in_once_the_coordinator_says_what_is_committed(cluster: MockCluster, tenant: str) -> None:
    """It takes longer than a request may: Faust then ends, without a word, what would let records in."""
    topic = f"fleetlore.{tenant}.events"
    cluster.create_topic(topic, partitions=1)
    await produce(cluster.address, topic, range(3))
    cluster.fail_next(Request.OFFSET_FETCH, [Failure.COORDINATOR_LOADING] * 250)  # ten a second or twenty
    async with adapter_worker(cluster.address, topic, tenant) as worker:
        assert await worker.records(3) == [(number, str(number)) for number in range(3)]


async def test_what_stops_the_client_for_good_is_told(cluster: MockCluster, tenant: str) -> None:
    """aiokafka keeps it for whoever fetches the next records its way, which is not Faust's."""
    topic = f"fleetlore.{tenant}.events"
    cluster.create_topic(topic, partitions=1)
    async with AIOKafkaConsumer(topic, bootstrap_servers=cluster.address, group_id=tenant) as consumer:
        app: Any = SimpleNamespace(_consumer=SimpleNamespace(_thread=SimpleNamespace(_consumer=consumer)))
        await consumer.position(KafkaPartition(topic, 0))
        assert failure(app) is None
        cluster.fail_next(Request.HEARTBEAT, [Failure.NOT_FORESEEN])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (error := failure(app)) is None:
                await asyncio.sleep(0.1)
        assert "heartbeat" in str(error)


async def test_a_call_to_the_client_waits_for_no_other() -> None:
    """One fetch and one question that wait for a broker that hangs were all that Faust lets wait."""
    thread: Any = FleetConsumerThread.__new__(FleetConsumerThread)
    thread._method_queue, thread.thread_loop, thread.beacon = None, asyncio.get_running_loop(), Node(None)
    queue = thread.method_queue
    await queue.start()
    hangs, said = asyncio.Event(), asyncio.get_running_loop().create_future()
    try:
        for _ in range(3):
            await queue.call(asyncio.get_running_loop().create_future(), hangs.wait)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await (await queue.call(said, asyncio.sleep, 0, "committed"))
    finally:
        hangs.set()
        await queue.stop()
    assert said.result() == "committed"


async def test_a_partition_that_moved_away_is_its_new_owners_to_commit(
    broker: EmbeddedBroker, make_topics: Any, tenant: str
) -> None:
    topic, group = f"fleetlore.{tenant}.events", tenant
    await make_topics(broker.address, tenant, "events", partitions=2)
    async with adapter_worker(broker.address, topic, group) as first:
        assert (await first.answer("assigned"))["assigned"] == [0, 1]
        assert await first.commit(5, partition=0) and await first.commit(5, partition=1)
        async with adapter_worker(broker.address, topic, group) as second:
            [taken] = (await second.answer("assigned"))["assigned"]
            [left] = (await first.answer("assigned"))["assigned"]
            assert {left, taken} == {0, 1}
            assert not await first.commit(9, partition=taken)
            assert await first.commit(9, partition=left)
            assert await committed(broker.address, topic, group, taken) == 5
            assert await committed(broker.address, topic, group, left) == 9


async def test_what_a_fetch_brings_while_the_flow_is_stopped_is_fetched_again(
    broker: EmbeddedBroker, make_topics: Any, tenant: str
) -> None:
    """A rebalance stops the flow under a fetch that waits. Nothing is committed yet, so no seek would go back."""
    await make_topics(broker.address, tenant, "events", partitions=1)
    partition = KafkaPartition(f"fleetlore.{tenant}.events", 0)
    await produce(broker.address, partition.topic, range(5))
    thread: Any = FleetConsumerThread.__new__(FleetConsumerThread)
    thread.consumer = SimpleNamespace(flow_active=True)
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([partition])
        waiting = asyncio.create_task(thread._fetch_records(consumer, {partition}, timeout=PATIENCE_SECONDS))
        await asyncio.sleep(0)
        thread.consumer.flow_active = False
        assert await waiting == {}
        assert await consumer.position(partition) == 0
        thread.consumer.flow_active = True
        fetched = await thread._fetch_records(consumer, {partition}, timeout=PATIENCE_SECONDS)
        assert [record.offset for record in fetched[partition]][:1] == [0]


async def test_a_reader_that_stands_still_pauses_its_partition_and_holds_few_bytes(
    broker: EmbeddedBroker, make_topics: Any, tenant: str
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    topic, count = f"fleetlore.{tenant}.events", 60
    async with adapter_worker(broker.address, topic, tenant) as worker:
        await worker.answer("assigned")
        await worker.tell("hold")
        await produce(broker.address, topic, range(count), size=LARGE)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (state := await worker.state())["paused"]:
                await asyncio.sleep(0.1)
        assert state["buffered"] <= BUFFER_PLACES + LARGE_PLACES
        await produce(broker.address, topic, range(count, count + 10), size=LARGE)
        await asyncio.sleep(0.5)
        state = await worker.state()
        assert state["paused"] == 1
        assert state["lag"] >= count + 9  # the embedded broker may not count the newest
        assert state["buffered"] <= BUFFER_PLACES + LARGE_PLACES
        await worker.tell("go")
        read = await worker.records(count + 10)
        assert [offset for offset, _ in read] == list(range(count + 10))
        state = await worker.state()
        assert (state["paused"], state["lag"], state["buffered"]) == (0, 0, 0)


async def test_a_topic_that_is_stopped_is_not_fetched_and_its_lag_grows(
    broker: EmbeddedBroker, make_topics: Any, tenant: str
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    topic = f"fleetlore.{tenant}.events"
    await produce(broker.address, topic, range(3))
    async with adapter_worker(broker.address, topic, tenant) as worker:
        await worker.records(3)
        await worker.tell("stop")
        await worker.answer("stopped")
        await asyncio.sleep(1.5)  # a fetch that was waiting ends
        await produce(broker.address, topic, range(3, 8))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await worker.state())["lag"] < 5:
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        await worker.state()
        assert "offset" not in worker.facts, "a record was handed over"


def test_our_partitions_are_equal_to_fausts() -> None:
    """High watermarks and commits are looked up in dictionaries that are keyed by either."""
    from faust.types import TP

    assert {TP("t", 1): 5} == {TopicPartition("t", 1): 5}
    assert hash(TP("t", 1)) == hash(TopicPartition("t", 1))


async def test_a_commit_that_comes_too_late_is_known_by_the_words_that_faust_looks_for() -> None:
    """Any other refusal of a commit ends the worker."""

    async def nothing() -> None:
        pass

    async def refused(assignment: Any, offsets: Any) -> None:
        raise IllegalGenerationError

    coordinator = SimpleNamespace(
        ensure_coordinator_known=nothing, _commit_lock=asyncio.Lock(), _do_commit_offsets=refused
    )
    with pytest.raises(CommitFailedError) as said:
        await GroupCoordinator.commit_offsets(coordinator, None, {})
    words = "already rebalanced"
    assert words in str(said.value) and f'"{words}" in str(exc)' in inspect.getsource(AIOKafkaConsumerThread._commit)


def test_faust_still_has_the_private_parts_that_are_overridden() -> None:
    from faust import App
    from faust.tables.recovery import Recovery
    from faust.transport.drivers.aiokafka import Consumer, Transport

    assert callable(AIOKafkaConsumerThread._create_worker_consumer)
    assert callable(AIOKafkaConsumerThread._commit)
    assert callable(AIOKafkaConsumerThread._fetch_records)
    assert "except IllegalStateError" in inspect.getsource(Recovery._restart_recovery.fun), "it waits for the next seek"
    resuming = inspect.getsource(Recovery._resume_streams)
    assert resuming.index("perform_seek") < resuming.index("resume_flow"), "the flow is resumed after the seek"
    assert callable(Consumer._new_consumer_thread)
    assert callable(BaseConsumer._commit)
    assert callable(BaseConsumer._wait_next_records)
    assert callable(BaseConsumer._get_active_partitions)
    assert "await self.wait_first(\n" in inspect.getsource(BaseConsumer._drain_messages), "it hands a record over"
    assert issubclass(Transport.Consumer, BaseConsumer)
    assert callable(App._on_rebalance_when_stopped)


@pytest.mark.parametrize(
    ("position", "committed", "begin", "expected"),
    [
        (4, None, 7, 3),  # retention went past what it was about to read
        (None, 5, 7, 2),  # and past the commit, while no worker was there
        (4, None, 2, 0),  # a transaction left the gap
        (9, 5, 7, 0),
        (None, None, 7, 0),  # a group that has read nothing yet
    ],
)
async def test_records_that_retention_deleted_before_they_were_read_are_counted(
    position: int | None, committed: int | None, begin: int, expected: int
) -> None:
    tp = TopicPartition("t", 0)

    async def earliest_offsets(*partitions: Any) -> dict[Any, int]:
        return dict.fromkeys(partitions, begin)

    app: Any = SimpleNamespace(
        consumer=SimpleNamespace(_committed_offset={tp: committed}, earliest_offsets=earliest_offsets)
    )
    batch = [Record("t", 0, offset, None, b"", {}) for offset in (9, 10)]
    found = await expired(app, batch, {} if position is None else {tp: position})
    assert found == ({tp: expected} if expected else {})


class HandingOver:
    """A coroutine that hands a record over, and what it did."""

    def __init__(self, waits: bool) -> None:
        self.waits, self.room = waits, asyncio.Event()
        self.did: list[str] = []

    async def __call__(self) -> str:
        self.did.append("begun")
        try:
            if self.waits:
                await self.room.wait()
                await asyncio.sleep(0)
        finally:
            self.did.append("ended")
        return "done"


@pytest.fixture
async def consumer() -> Any:
    """A consumer that was never started."""
    consumer = FleetConsumer.__new__(FleetConsumer)
    Service.__init__(consumer, loop=asyncio.get_running_loop())
    return consumer


async def test_a_seek_that_a_rebalance_overtakes_lets_no_record_in(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust clears what has come when the seek of the next rebalance is done, and that would be lost."""
    sought, assigned = asyncio.Event(), asyncio.Event()

    async def seek_to_committed() -> dict[Any, int]:
        await sought.wait()
        return {}

    async def on_revoked(revoked: set[Any]) -> None:
        await assigned.wait()

    conf = SimpleNamespace(broker_request_timeout=PATIENCE_SECONDS)
    consumer.app = SimpleNamespace(consumer_generation_id=2, conf=conf)
    consumer.flow_active, consumer.can_resume_flow, consumer.suspend_flow = False, asyncio.Event(), asyncio.Event()
    consumer._read_offset, consumer._committed_offset = {}, {}
    monkeypatch.setattr(consumer, "seek_to_committed", seek_to_committed)
    monkeypatch.setattr(BaseConsumer, "on_partitions_revoked", lambda self, revoked: on_revoked(revoked))
    overtaken = asyncio.create_task(consumer.perform_seek())
    revoking = asyncio.create_task(consumer.on_partitions_revoked(set()))
    await asyncio.sleep(0)
    consumer.resume_flow()
    assert not consumer.flow_active
    assigned.set()
    await revoking
    consumer.app.consumer_generation_id = 3
    sought.set()
    with pytest.raises(IllegalStateError):
        await overtaken
    await consumer.perform_seek()
    consumer.resume_flow()
    assert consumer.flow_active


async def test_a_record_for_which_there_is_room_is_handed_over_without_a_task(consumer: Any) -> None:
    handing_over, suspended = HandingOver(waits=False), asyncio.Event()
    step = consumer.wait_first(handing_over(), suspended.wait())
    with pytest.raises(StopIteration) as end:
        step.send(None)
    assert end.value.value.results == ["done"] and not end.value.value.stopped
    assert handing_over.did == ["begun", "ended"]


@pytest.mark.parametrize("suspended_first", [False, True])
async def test_a_record_that_has_to_wait_does_so_until_there_is_room_or_the_flow_is_suspended(
    consumer: Any, suspended_first: bool
) -> None:
    handing_over, suspended = HandingOver(waits=True), asyncio.Event()
    waiting = asyncio.create_task(consumer.wait_first(handing_over(), suspended.wait()))
    await asyncio.sleep(0.01)
    assert handing_over.did == ["begun"] and not waiting.done()
    (suspended if suspended_first else handing_over.room).set()
    results = (await waiting).results
    assert results == ([True] if suspended_first else ["done"])
    await asyncio.sleep(0)
    assert handing_over.did == ["begun", "ended"]


async def test_an_error_in_handing_a_record_over_is_raised(consumer: Any) -> None:
    async def fails() -> None:
        raise ValueError("a record")

    with contextlib.closing(asyncio.Event().wait()) as suspended, pytest.raises(ValueError, match="a record"):
        await consumer.wait_first(fails(), suspended)


async def test_what_waits_comes_in_one_batch_of_which_the_stream_gives_the_first_alone() -> None:
    flow = FlowControlEvent()
    flow.resume()
    queue = Buffer(flow_control=flow)
    for number in range(100):
        queue.put_nowait(SimpleNamespace(message=SimpleNamespace(value=b"%d" % number)))
    given: list[Any] = []

    async def events() -> AsyncIterator[Any]:
        while True:
            given.append(await queue.get())
            yield given[-1]

    stream = SimpleNamespace(events=events, channel=SimpleNamespace(queue=queue))
    reader = batches(stream, 64, linger_seconds=0.0)
    sizes = [len(await anext(reader)), len(await anext(reader))]
    await reader.aclose()  # type: ignore[attr-defined]
    assert sizes == [64, 36] and queue.qsize() == 0
    assert [each.message.value for each in given] == [b"0", b"64"]


async def test_a_client_that_no_server_has_answered_yet_has_not_failed(unused_address: str) -> None:
    client = AIOKafkaConsumer("t", bootstrap_servers=unused_address, group_id="g")
    consumer = SimpleNamespace(_thread=SimpleNamespace(_consumer=client))
    assert failure(SimpleNamespace(_consumer=consumer)) is None
    await client.stop()
