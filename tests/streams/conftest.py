"""Run the pipeline behind one interface on a log in memory, and as a worker on a real broker and Milvus."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from fleetlore.risk.encoder import StaticEncoder
from fleetlore.testing.clock import FakeClock
from fleetlore.testing.log import InMemoryLog
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import RawRecord
from fleetlore.wire.events import Event
from fleetlore.wire.records import BATCH_HEADERS, encode_record
from fleetlore.wire.topics import partition_for, topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import COMPACTED, json_arrays
from sinks.topics import ensure_topics
from streams.embedded.broker import EmbeddedBroker, free_port
from streams.offline.drain import wait_drained
from streams.offline.memory_pipeline import MemoryStore
from streams.offline.state_hash import Knowledge, read_knowledge
from streams.runtime.delivery import Delivery
from streams.runtime.ledger import Ledger
from streams.stage.base import Outgoing, Record, Stage
from streams.stages.pipeline import pipeline as all_stages
from streams.stages.s3_judgments.language_model import LanguageModel
from streams.stages.s5_opinions.stage import OpinionsStage

BASE_TIME = 1_760_000_000.0  # before the fake clock's start and before any real one
PARTITIONS = 2
GROUP = "fleetlore"
MILVUS_FIELD_BYTES = 65_535
START_SECONDS = 120.0
DRAIN_SECONDS = 120.0

Call = tuple[str, Any, str, str | None]  # tool, arguments, result, error
DeadLetter = tuple[dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class Story:
    """Makes the events of sessions."""

    tenant: str

    def session(
        self,
        session: str,
        *calls: Call,
        outcome: str | None = "success",
        agent: str | None = None,
        task: str = "task-1",
        start: float = BASE_TIME,
    ) -> list[Event]:
        """Start, calls, and (unless `outcome` is None) the end; a second apart."""
        steps: list[tuple[ev.Kind, dict[str, Any]]] = [
            ("session.started", {ev.GOAL: f"get {task} done", ev.TASK: task}),
            *(("outcome", self._data(*call)) for call in calls),
        ]
        if outcome is not None:
            steps.append(("session.ended", {ev.OUTCOME: outcome}))
        name = agent or f"agent-of-{session}"
        return [
            Event(kind, self.tenant, name, session, sequence, start + sequence, data)
            for sequence, (kind, data) in enumerate(steps)
        ]

    def feedback(self, session: str, outcome: str, sequence: int = 0, time: float = BASE_TIME + 100) -> Event:
        return Event("feedback", self.tenant, "reviewer", session, sequence, time, {ev.OUTCOME: outcome})

    def fleet(self) -> list[list[Event]]:
        """Six sessions on two tasks: recoveries, lessons and strategies from several agents."""
        wrong: Call = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
        right: Call = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
        other: Call = ("sql", {"query": "SELECT nam FROM users"}, "", "no such column: 'nam'")
        fixed: Call = ("sql", {"query": "SELECT name FROM users"}, "7 rows", None)
        weather: Call = ("http", {"url": "https://a.example/x"}, "", "HTTP 503 Service Unavailable")
        return [
            self.session("good-1", wrong, right, agent="a1"),
            self.session("good-2", right, weather, agent="a2"),
            self.session("bad-1", wrong, wrong, outcome="failure", agent="a1"),
            self.session("good-3", other, fixed, task="task-2", agent="a3"),
            self.session("bad-2", right, other, other, outcome="failure", task="task-2", agent="a2"),
            self.session("unsure", right, outcome="unknown", task="task-2", agent="a3"),
        ]

    @staticmethod
    def interleaved(sessions: Sequence[Sequence[Event]], seed: int) -> list[Event]:
        """All events, each session in order, sessions taking turns by chance."""
        rng = Random(seed)
        waiting = [list(session) for session in sessions]
        mixed: list[Event] = []
        while waiting:
            chosen = rng.choice(waiting)
            mixed.append(chosen.pop(0))
            if not chosen:
                waiting.remove(chosen)
        return mixed

    @staticmethod
    def _data(tool: str, arguments: Any, result: str, error: str | None) -> dict[str, Any]:
        data = {ev.TOOL: tool, ev.ARGUMENTS: arguments, ev.RESULT: result}
        return data if error is None else {**data, ev.ERROR_MESSAGE: error}


class CheckedStore(MemoryStore):
    """Refuses what Milvus would refuse."""

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            for name in ("body", "state"):
                size = len(row.get(name, "").encode())
                assert size <= MILVUS_FIELD_BYTES, f"{collection}.{name} of {row['id']} has {size} bytes"
        await super().upsert(collection, rows)


class MemoryOutbox:
    """Writes back into the log, packed as the real one packs.

    Attributes:
        fails_at: numbers of the deliveries that fail half-way: the first half of the values is written all the same.
    """

    def __init__(self, log: InMemoryLog) -> None:
        self._log = log
        self.fails_at: set[int] = set()
        self.deliveries = 0

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        self.deliveries += 1
        broken = self.deliveries in self.fails_at
        shared: dict[tuple[str, int], list[bytes]] = {}
        for value in values[: len(values) // 2] if broken else values:
            name = topic(value.tenant, value.topic)
            if value.topic in COMPACTED:
                self._log.append(name, value.value, key=value.key.encode())
            elif value.value is not None:
                place = name, partition_for(value.key, self._log.partitions(name))
                shared.setdefault(place, []).append(value.value)
        for (name, partition), parts in shared.items():
            for array in json_arrays(parts):
                self._log.append(name, array, partition=partition)
        if broken:
            raise BrokerUnavailable("killed in the middle of a delivery")

    async def send(self, letters: Sequence[RawRecord]) -> None:
        for each in letters:
            partition = each.partition % self._log.partitions(each.topic)
            self._log.append(each.topic, each.value, key=each.key, partition=partition, headers=each.headers)


class LogPipeline:
    """All stages on an in-memory log; everything happens when the test says so."""

    real = False
    stages: tuple[Stage, ...] = ()

    def __init__(
        self,
        tenant: str = "acme",
        batch_records: int = 4,
        silent_seconds: float = 3600.0,
        model: LanguageModel | None = None,
    ) -> None:
        self.tenant = tenant
        self.story = Story(tenant)
        self.batch_records = batch_records
        self.log = InMemoryLog(PARTITIONS)
        self.clock = FakeClock()
        self.metrics = Metrics("worker")
        self.store = CheckedStore()
        self.producer = MemoryOutbox(self.log)
        self._silent_seconds = silent_seconds
        self._model = model
        self.start()

    def start(self) -> None:
        """A new worker: no stage remembers anything, reading starts at the committed offsets."""
        self.ledger = Ledger()
        self.delivery = Delivery(self.store, self.producer, self.metrics, self.clock, self.ledger, budget_seconds=0)
        for stage in self.stages:
            stage.forget()
        self.stages = all_stages(self.store, self.metrics, self.clock, self._silent_seconds, model=self._model)
        if self._model is not None:
            self.stages += (OpinionsStage(self._model, concurrency=4),)
        self._positions = {
            (stage.reads, partition): self.committed(stage.reads)[partition][0]
            for stage in self.stages
            for partition in range(PARTITIONS)
        }

    crash = start

    async def send(self, events: Sequence[Event], per_record: int = 1) -> None:
        """Each partition's events in order, at most `per_record` in a record."""
        for key, partition, chunk in records_of(events, per_record):
            name = topic(self.tenant, "events")
            self.log.append(name, encode_record(chunk), key=key, partition=partition, headers=BATCH_HEADERS)

    async def send_raw(
        self, value: bytes, key: bytes | None = b"raw", headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        self.log.append(topic(self.tenant, "events"), value, key=key, headers=headers)

    async def step(self) -> bool:
        """One batch of the first stage and partition that has anything to read; False where none has."""
        for stage in self.stages:
            for partition in range(PARTITIONS):
                if await self._batch(stage, partition):
                    return True
        for stage in self.stages:
            if stage.holds:
                await self.delivery.run(stage, [])
                return True
        return False

    async def _batch(self, stage: Stage, partition: int) -> bool:
        place = stage.reads, partition
        read = self.log.read(topic(self.tenant, stage.reads), partition, self._positions[place], self.batch_records)
        if not read:
            return False
        batch = [Record(r.topic, r.partition, r.offset, r.key, r.value, dict(r.headers)) for r in read]
        await self.delivery.run(stage, batch)
        self._positions[place] = read[-1].offset + 1
        return True

    def commit(self) -> None:
        offsets = self.ledger.take()
        for tp, offset in offsets.items():
            self.log.commit(GROUP, tp.topic, tp.partition, offset)
        self.ledger.settle(offsets)

    async def drain(self) -> None:
        """Until nothing moves."""
        while await self.step():
            self.commit()
        self.commit()

    work = drain

    async def knowledge(self) -> Knowledge:
        return in_order(await read_knowledge(self.store, self.tenant))  # type: ignore[arg-type]

    async def bodies(self, collection: str) -> list[dict[str, Any]]:
        return [orjson.loads(row["body"]) async for row in self.store.rows(collection, self.tenant) if row["body"]]

    async def dead_letters(self) -> list[DeadLetter]:
        return [
            ({name: value.decode() for name, value in record.headers}, record.value or b"")
            for record in self.log.read_all(topic(self.tenant, "dead-letters"))
        ]

    async def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def committed(self, name: str) -> dict[int, tuple[int, int]]:
        """By partition: the committed offset and the end."""
        full = topic(self.tenant, name)
        return {
            partition: (self.log.committed(GROUP, full, partition) or 0, self.log.end_offset(full, partition))
            for partition in range(PARTITIONS)
        }

    async def committed_offsets(self, name: str) -> dict[int, tuple[int, int]]:
        return self.committed(name)


def in_order(knowledge: Knowledge) -> Knowledge:
    """Rows come in no order; two equal states shall compare equal."""
    return replace(knowledge, judgments=sorted(knowledge.judgments))


def records_of(events: Sequence[Event], per_record: int) -> Iterator[tuple[bytes | None, int, list[Event]]]:
    """(key, partition, events) of records, as an emitter would fill them."""
    chunks: dict[int, list[Event]] = {}
    for event in events:
        partition = partition_for(event.session, PARTITIONS)
        chunk = chunks.setdefault(partition, [])
        chunk.append(event)
        if len(chunk) == per_record:
            yield (event.session.encode() if per_record == 1 else None), partition, chunk
            chunks[partition] = []
    for partition, chunk in chunks.items():
        if chunk:
            yield None, partition, chunk


@dataclass(slots=True)
class Server:
    """A broker, Milvus and one worker process that serves a list of tenants; a test takes one."""

    settings: Settings
    metrics_url: str
    store: MilvusStore
    tenants: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.tenants = iter(self.settings.tenants)


class BrokerPipeline:
    """One tenant of a running server."""

    real = True

    def __init__(self, server: Server) -> None:
        self.tenant = next(server.tenants)
        self.story = Story(self.tenant)
        self.settings = server.settings
        self._server = server
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.broker, acks="all", max_request_size=16 * 1024 * 1024
        )
        await self._producer.start()

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()

    async def send(self, events: Sequence[Event], per_record: int = 1) -> None:
        assert self._producer is not None
        name = topic(self.tenant, "events")
        sent = [
            await self._producer.send(name, encode_record(chunk), key=key, partition=partition, headers=BATCH_HEADERS)
            for key, partition, chunk in records_of(events, per_record)
        ]
        await asyncio.gather(*sent)

    async def send_raw(
        self, value: bytes, key: bytes | None = b"raw", headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        assert self._producer is not None
        await self._producer.send_and_wait(topic(self.tenant, "events"), value, key=key, headers=list(headers))

    async def drain(self) -> None:
        await wait_drained(self.settings, self.tenant, DRAIN_SECONDS)

    async def work(self) -> None:
        """Until everything was read, where an open session holds the commit back: a session sent last has been judged.

        And until what was observed is stored, which a known pattern waits for.
        """
        fence = [self.story.session(f"fence-{n}", task="", start=BASE_TIME) for n in range(20)]
        by_partition = {partition_for(each[0].session, PARTITIONS): each for each in fence}
        before = len((await self.knowledge()).judgments)
        for each in by_partition.values():
            await self.send(each)
        async with asyncio.timeout(DRAIN_SECONDS):
            while len((await self.knowledge()).judgments) < before + len(by_partition):
                await asyncio.sleep(0.1)
            while any(committed < end for committed, end in (await self.committed_offsets("observations")).values()):
                await asyncio.sleep(0.1)

    async def knowledge(self) -> Knowledge:
        return in_order(await read_knowledge(self._server.store, self.tenant))

    async def bodies(self, collection: str) -> list[dict[str, Any]]:
        rows = self._server.store.rows(collection, self.tenant, "body")
        return [orjson.loads(row["body"]) async for row in rows if row["body"]]

    async def dead_letters(self) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        async with observer(self.settings.broker) as consumer:
            partitions = await partitions_of(consumer, topic(self.tenant, "dead-letters"))
            ends = await end_offsets(consumer, partitions)
            missing = sum(ends.values())
            await consumer.seek_to_beginning(*partitions)
            while len(letters) < missing:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    letters += [({k: v.decode() for k, v in record.headers}, record.value) for record in records]
        return letters

    async def metric(self, name: str, **labels: str) -> float:
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{self._server.metrics_url}/metrics").read())
        return sum(
            sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        )

    async def committed_offsets(self, name: str) -> dict[int, tuple[int, int]]:
        async with observer(self.settings.broker, self.settings.group) as consumer:
            ends = await end_offsets(consumer, await partitions_of(consumer, topic(self.tenant, name)))
            return {tp.partition: (await consumer.committed(tp) or 0, end) for tp, end in ends.items()}


def guarded(*command: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A child that does not outlive the test run."""
    return subprocess.Popen(
        [sys.executable, "-m", "streams.embedded.supervisor", *command],
        stdin=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
        start_new_session=True,
    )


def end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    child.wait(40)
    if child.stdin is not None:
        child.stdin.close()


def wait_ready(url: str, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert child.poll() is None, f"the worker ended with {child.returncode}"
        try:
            with closing(urllib.request.urlopen(f"{url}/readyz", timeout=2)):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"nothing is ready at {url}: {_why(url)}")


def _why(url: str) -> str:
    try:
        return str(urllib.request.urlopen(f"{url}/readyz", timeout=2).read())
    except urllib.error.HTTPError as refused:
        return str(refused.read())
    except OSError as error:
        return repr(error)


def worker_environ(settings: Settings) -> dict[str, str]:
    return {name: value for name, value in settings.to_env().items() if value}


@pytest.fixture(scope="session")
def start_worker() -> Iterator[Callable[[Settings], subprocess.Popen[bytes]]]:
    """Start a worker process and wait until it has its partitions; ended with the run unless the test ends it."""
    children: list[subprocess.Popen[bytes]] = []

    def start(settings: Settings) -> subprocess.Popen[bytes]:
        child = guarded(sys.executable, "-m", "fleetlore.cli.main", "worker", environ=worker_environ(settings))
        children.append(child)
        wait_ready(f"http://127.0.0.1:{settings.metrics_port}", child)
        return child

    yield start
    for child in children:
        end(child)


@pytest.fixture(scope="session")
def server(broker: EmbeddedBroker, milvus: str, start_worker: Callable[[Settings], subprocess.Popen[bytes]]) -> Server:
    settings = Settings(
        broker=broker.address,
        milvus=milvus,
        group=f"stages-{os.getpid()}",
        tenants=tuple(f"stage{number:02}" for number in range(40)),
        partitions=PARTITIONS,
        session_timeout_seconds=6.0,
        metrics_port=free_port(),
    )
    start_worker(settings)
    store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
    return Server(settings, f"http://127.0.0.1:{settings.metrics_port}", store)


@pytest.fixture
async def broker_pipeline(request: pytest.FixtureRequest) -> AsyncIterator[BrokerPipeline]:
    pipeline = BrokerPipeline(request.getfixturevalue("server"))
    await pipeline.start()
    yield pipeline
    await pipeline.stop()


@pytest.fixture
async def lone_pipeline(broker: EmbeddedBroker, tenant: str) -> AsyncIterator[Callable[..., Awaitable[BrokerPipeline]]]:
    """Makes the pipeline of a tenant and a group of its own, for whose workers the test cares."""
    async with AsyncExitStack() as stack:

        async def make(milvus: str, **changes: Any) -> BrokerPipeline:
            settings = Settings(
                broker=broker.address,
                milvus=milvus,
                group=tenant,
                tenants=(tenant,),
                partitions=PARTITIONS,
                session_timeout_seconds=6.0,
                metrics_port=free_port(),
            ).with_(**changes)
            await ensure_topics(settings)
            store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
            pipeline = BrokerPipeline(Server(settings, f"http://127.0.0.1:{settings.metrics_port}", store))
            await pipeline.start()
            stack.push_async_callback(pipeline.stop)
            return pipeline

        yield make


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.timeout(300))])
async def pipeline(request: pytest.FixtureRequest) -> AsyncIterator[LogPipeline | BrokerPipeline]:
    """The pipeline, once on the in-memory log and once as a worker process."""
    if request.param == "memory":
        yield LogPipeline()
        return
    real = BrokerPipeline(request.getfixturevalue("server"))
    await real.start()
    yield real
    await real.stop()


@pytest.fixture
def log_pipeline() -> Callable[..., LogPipeline]:
    return LogPipeline


@pytest.fixture
def reference() -> Callable[[str, Sequence[Event]], Awaitable[Knowledge]]:
    """What an in-memory pipeline comes to know from events."""

    async def run(tenant: str, events: Sequence[Event]) -> Knowledge:
        pipeline = LogPipeline(tenant)
        await pipeline.send(events)
        await pipeline.drain()
        return await pipeline.knowledge()

    return run
