"""Run the pipeline on a log in memory, batch by batch, as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import orjson

from benchmarks.cloudevents import encode_record
from benchmarks.replay import Knowledge, read_knowledge
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.testing import FakeClock
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import RawRecord
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import partition_for, topic
from models.judge import JudgeChain
from models.llm.questions import LanguageModel
from sinks.metrics import Metrics
from sinks.producer import COMPACTED, POSITION, json_arrays
from streams.offline.memory_pipeline import MemoryStore
from streams.runtime.delivery import Delivery, Lease, Ledger
from streams.stage.base import Outgoing, Record, Stage
from streams.stage.operators import Operators
from streams.stages.pipeline import pipeline as all_stages
from streams.stages.s3_judgments import JudgmentsStage, OpinionsStage
from tests.doubles.memory_log import InMemoryLog

MAX_SENT_BYTES = 16 * 2**20
BASE_TIME = 1_760_000_000.0  # before the fake clock's start and before any real one
PARTITIONS = 2
MILVUS_FIELD_BYTES = 65_535
LEASE_SECONDS = 5.0

Call = tuple[str, Any, str, str | None]  # tool, arguments, result, error
DeadLetter = tuple[dict[str, str], bytes]
WRONG: Call = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
RIGHT: Call = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
OTHER: Call = ("sql", {"query": "SELECT nam FROM users"}, "", "no such column: 'nam'")


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
        """Eight sessions on two tasks: recoveries, and a strategy of three agents."""
        fixed: Call = ("sql", {"query": "SELECT name FROM users"}, "7 rows", None)
        weather: Call = ("http", {"url": "https://a.example/x"}, "", "HTTP 503 Service Unavailable")
        return [
            self.session("good-1", WRONG, RIGHT, agent="a1"),
            self.session("good-2", RIGHT, weather, agent="a2"),
            self.session("bad-1", WRONG, WRONG, outcome="failure", agent="a1"),
            self.session("good-3", OTHER, fixed, task="task-2", agent="a3"),
            self.session("bad-2", RIGHT, OTHER, OTHER, outcome="failure", task="task-2", agent="a2"),
            self.session("unsure", RIGHT, outcome="unknown", task="task-2", agent="a3"),
            self.session("good-4", RIGHT, agent="a2"),
            self.session("good-5", RIGHT, agent="a3"),
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
    """Refuses what Milvus would refuse.

    Attributes:
        gates: by collection: what the next write of it waits for before it lands.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, asyncio.Event] = {}

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            for name in ("body", "state"):
                size = len(row.get(name, "").encode())
                assert size <= MILVUS_FIELD_BYTES, f"{collection}.{name} of {row['id']} has {size} bytes"
        if (gate := self.gates.pop(collection, None)) is not None:
            rows = [dict(row) for row in rows]
            await gate.wait()
        await super().upsert(collection, rows)


class LogProducer:
    """Writes back into the log, packed as the real one packs.

    Attributes:
        fails_at: numbers of the deliveries that fail half-way: the first half of the values is written all the same.
    """

    def __init__(self, log: InMemoryLog) -> None:
        self.log = log
        self.fails_at: set[int] = set()
        self.deliveries = 0

    async def deliver(self, values: Sequence[Outgoing], positions: Mapping[tuple[str, int], int] = {}) -> None:
        self.deliveries += 1
        broken = self.deliveries in self.fails_at
        shared: dict[tuple[str, int], list[bytes]] = {}
        for value in values[: len(values) // 2] if broken else values:
            name = topic(value.tenant, value.topic)
            if value.topic in COMPACTED:
                place = value.tenant, partition_for(value.key, self.log.partitions(name))
                headers = [(POSITION, b"%d" % positions[place])] if place in positions else []
                self.log.append(name, value.value, key=value.key.encode(), headers=headers)
            elif value.value is not None:
                place = name, partition_for(value.key, self.log.partitions(name))
                shared.setdefault(place, []).append(value.value)
        for (name, partition), parts in shared.items():
            for array in json_arrays(parts):
                self.log.append(name, array, partition=partition)
        if broken:
            raise BrokerUnavailable("killed in the middle of a delivery")

    async def send(self, letters: Sequence[RawRecord]) -> None:
        for each in letters:
            partition = each.partition % self.log.partitions(each.topic)
            self.log.append(each.topic, each.value, key=each.key, partition=partition, headers=each.headers)


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
        judge: JudgeChain | None = None,
    ) -> None:
        self.tenant = tenant
        self.story = Story(tenant)
        self.batch_records = batch_records
        self.clock = FakeClock()
        self.broker_clock = FakeClock()
        self.log = InMemoryLog(PARTITIONS, self.broker_clock)
        # Without a limit, like the embedded broker: a stage must accept every record that agents may send.
        self.log.create_topic(topic(tenant, "events"), PARTITIONS, max_message_bytes=MAX_SENT_BYTES)
        self.metrics = Metrics("worker")
        self.store = CheckedStore()
        self.producer = LogProducer(self.log)
        self._silent_seconds = silent_seconds
        self._model = model
        self._judge = judge
        self.start()

    def another(self) -> LogPipeline:
        """A worker on the same log and store that takes over all partitions; this one does not know it yet."""
        other = copy(self)
        other.stages = ()
        other.start()
        other.delivery.second_writes.begin()
        return other

    def start(self) -> None:
        """A new worker: no stage remembers anything, reading starts at the committed offsets."""
        self.generation = self.log.join(self.tenant)
        self.lease = Lease(LEASE_SECONDS, self.clock.monotonic)
        self.ledger = Ledger(self.clock)
        parts = self.store, self.producer, self.metrics, self.clock, self.ledger
        self.delivery = Delivery(*parts, budget_seconds=0, lease=self.lease, write_seconds=LEASE_SECONDS)
        for stage in self.stages:
            stage.close()
        self.operators = Operators()
        for decisions in self.operators.topics:
            for record in self.log.read_all(topic(self.tenant, decisions.topic)):
                decisions.take(self.tenant, record.value)
        settings = Settings(silent_seconds=self._silent_seconds)
        self.stages = all_stages(self.store, self.metrics, self.clock, settings, self._model, self.operators)
        for stage in self.stages:
            if isinstance(stage, JudgmentsStage) and self._judge is not None:
                stage.judge = self._judge
        if self._model is not None:
            self.stages += (OpinionsStage(self._model, self.operators.erased),)
        self._positions = {
            (stage.reads, partition): self.committed(stage.reads)[partition][0]
            for stage in self.stages
            for partition in range(PARTITIONS)
        }

    crash = start

    async def send(self, events: Sequence[Event], per_record: int = 1) -> None:
        """Each partition's events in order, at most `per_record` in a record."""
        for name, key, partition, chunk in records_of(self.tenant, events, per_record):
            self.log.append(name, encode_record(chunk), key=key, partition=partition, headers=BATCH_HEADERS)

    async def take(self, events: Sequence[Event], per_record: int = 1) -> None:
        """Send events and work until nothing moves."""
        await self.send(events, per_record)
        await self.drain()

    async def send_raw(
        self, value: bytes, key: bytes | None = b"raw", headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> None:
        self.log.append(topic(self.tenant, "events"), value, key=key, headers=headers)

    def heartbeat(self) -> None:
        """The coordinator answers the member of the group."""
        if self.log.generation(self.tenant) == self.generation:
            self.lease.renew(self.lease.now())

    async def run(self, stage: Stage, batch: Sequence[Record]) -> None:
        self.heartbeat()
        await self.delivery.run(stage, batch)

    async def step(self) -> bool:
        """One batch of the first stage and partition that has anything to read; False where none has."""
        for stage in self.stages:
            for partition in range(PARTITIONS):
                if await self.batch(stage, partition):
                    return True
        for stage in self.stages:
            if stage.holds or self.delivery.second_writes.owes(stage.name):
                await self.run(stage, [])
                return True
        return False

    async def batch(self, stage: Stage, partition: int) -> bool:
        """One batch of a stage and partition; False where nothing is left to read."""
        place = stage.reads, partition
        read = self.log.read(topic(self.tenant, stage.reads), partition, self._positions[place], self.batch_records)
        if not read:
            return False
        batch = [
            Record(r.topic, r.partition, r.offset, r.key, r.value, dict(r.headers), r.timestamp / 1000) for r in read
        ]
        await self.run(stage, batch)
        self._positions[place] = read[-1].offset + 1
        return True

    def commit(self) -> None:
        offsets = self.ledger.take()
        for tp, offset in offsets.items():
            self.log.commit(self.tenant, tp.topic, tp.partition, offset, self.generation)
        self.ledger.settle(offsets)

    async def drain(self) -> None:
        """Until nothing moves."""
        while await self.step():
            self.commit()
        self.commit()

    work = drain

    async def knowledge(self) -> Knowledge:
        return in_order(await read_knowledge(self.store, self.tenant))

    async def bodies(self, collection: str) -> list[dict[str, Any]]:
        return [
            orjson.loads(row["body"]) async for row in self.store.rows(collection, self.tenant, "body") if row["body"]
        ]

    async def dead_letters(self) -> list[DeadLetter]:
        return [
            ({name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}, record.value or b"")
            for record in self.log.read_all(topic(self.tenant, "dead-letters"))
        ]

    def published(self, name: str) -> list[Any]:
        """The values on a topic that workers write."""
        records = self.log.read_all(topic(self.tenant, name))
        return [value for record in records for value in orjson.loads(record.value or b"[]")]

    async def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def committed(self, name: str) -> dict[int, tuple[int, int]]:
        """By partition: the committed offset and the end."""
        full = topic(self.tenant, name)
        return {
            partition: (self.log.committed(self.tenant, full, partition) or 0, self.log.end_offset(full, partition))
            for partition in range(PARTITIONS)
        }

    async def committed_offsets(self, name: str) -> dict[int, tuple[int, int]]:
        return self.committed(name)


def in_order(knowledge: Knowledge) -> Knowledge:
    """Rows come in no order; two equal states shall compare equal."""
    return replace(knowledge, judgments=sorted(knowledge.judgments))


def records_of(
    tenant: str, events: Sequence[Event], per_record: int
) -> Iterator[tuple[str, bytes | None, int, list[Event]]]:
    """(topic, key, partition, events) of records, as an emitter would fill them."""
    chunks: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        name = topic(tenant, "feedback" if event.kind == "feedback" else "events")
        place = name, partition_for(event.session, PARTITIONS)
        chunk = chunks.setdefault(place, [])
        chunk.append(event)
        if len(chunk) == per_record:
            yield name, (event.session.encode() if per_record == 1 else None), place[1], chunk
            chunks[place] = []
    for (name, partition), chunk in chunks.items():
        if chunk:
            yield name, None, partition, chunk


def flat(sessions: Iterable[Sequence[Event]]) -> list[Event]:
    return [event for session in sessions for event in session]


async def learned(sessions: Sequence[Sequence[Event]], tenant: str = "acme") -> LogPipeline:
    """A pipeline that has processed these sessions."""
    pipeline = LogPipeline(tenant)
    await pipeline.take(flat(sessions))
    return pipeline


def held(pipeline: LogPipeline) -> int:
    """Records of `events` that are not committed."""
    return sum(end - committed for committed, end in pipeline.committed("events").values())
