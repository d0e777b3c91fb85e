"""Run the stages in one process without topics, and replay logged sessions through a real agent's session.

A backfill runs a `Chain` over Milvus. A `MemoryPipeline` adds a store and a clock in memory, with real sessions and
advice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fleetlore.agent.fleet import Fleet, Session
from fleetlore.calls.model import CallModel
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.errors import RowRefused
from fleetlore.fingerprint.fingerprint import arguments_text, failure_of
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.encode import encode_event
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.backtest import Call, CallLog, Heard, Told, told
from models.calls.training import train
from sinks.collections import can_be_id
from sinks.metrics import Metrics
from sinks.producer import json_arrays
from streams.stage.base import Effects, Outgoing, Record, Stage, Store
from streams.stages.pipeline import pipeline

__all__ = ["run_logs"]

log = logging.getLogger(__name__)

_NO_BROKER = "127.0.0.1:9"
_START_SECONDS = 1_700_000_000.0
_EVENT_SECONDS = 1.0
SILENT_SECONDS = 3600.0
BATCH_SESSIONS = 128


class Chain:
    """Values for compacted topics and dead letters are left to live workers."""

    def __init__(self, stages: Sequence[Stage], store: Store) -> None:
        self._stages = stages
        self._store = store
        self._read = {stage.reads for stage in stages}
        self._writes: list[asyncio.Task[None]] = []

    async def run(self, batch: Sequence[Record]) -> Effects:
        """Process a batch of events and feedback. Return the first stage's effects, with both counts."""
        first, *later = self._stages
        came = dict(self.first_of(batch))
        waiting = {stage.reads: records for stage, records in came.items() if stage is not first}
        effects = await first.process(came.get(first, []))
        await self.settle()  # later stages read these rows
        self._hand_on(effects.outgoing, waiting)
        self._write(effects)
        for stage in later:
            records = waiting.pop(stage.reads, None)
            if records:
                made = await stage.process(records)
                if stage in came:
                    effects.processed += made.processed
                    effects.dead_letters += made.dead_letters
                self._hand_on(made.outgoing, waiting)
                self._write(made)
            if stage.holds:
                self._write(await stage.process([]))
        return effects

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        """Process values as if they came from topics, and wait for their rows."""
        waiting: dict[str, list[Record]] = {}
        self._hand_on(values, waiting)
        await self.run([record for records in waiting.values() for record in records])
        await self.settle()

    def first_of(self, batch: Sequence[Record]) -> list[tuple[Stage, list[Record]]]:
        by_topic: dict[str, list[Record]] = {}
        for record in batch:
            by_topic.setdefault(record.topic.split(".", 2)[2], []).append(record)
        return [(stage, by_topic[stage.reads]) for stage in self._stages if stage.reads in by_topic]

    async def settle(self) -> None:
        writes, self._writes = self._writes, []
        if writes:
            await asyncio.wait(writes)
            for write in writes:
                write.result()

    def _write(self, effects: Effects) -> None:
        if effects.rows:
            self._writes.append(asyncio.create_task(self._upsert(effects)))

    async def _upsert(self, effects: Effects) -> None:
        for collection, rows in effects.rows.items():
            try:
                await self._store.upsert(collection, rows)
            except RowRefused as error:
                log.warning("%s", error)  # the live workers make the dead letter
        if effects.acknowledged is not None:
            effects.acknowledged()

    def _hand_on(self, values: Sequence[Outgoing], waiting: dict[str, list[Record]]) -> None:
        packed: dict[tuple[str, str], list[bytes]] = {}
        for value in values:
            if value.topic in self._read and value.value is not None:
                packed.setdefault((value.tenant, value.topic), []).append(value.value)
        for (tenant, name), parts in packed.items():
            records = waiting.setdefault(name, [])
            records.extend(Record(topic(tenant, name), 0, 0, None, array, {}) for array in json_arrays(parts))


def records_of_events(events: Iterable[Event], offset: int = 0) -> list[Record]:
    values: dict[str, list[bytes]] = {}
    for event in events:
        name = topic(event.tenant, "feedback" if event.kind == "feedback" else "events")
        values.setdefault(name, []).append(encode_event(event))
    return [
        Record(name, 0, offset + place, None, array, {})
        for name, encoded in values.items()
        for place, array in enumerate(json_arrays(encoded))
    ]


class MemoryStore:
    """An in-memory `Store`. `written`: (collection, id) of rows since the last clear, in order of their first write."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, dict[str, Any]]] = {}
        self.written: dict[tuple[str, str], None] = {}

    def bodies(self, collection: str) -> list[bytes]:
        rows = self.collections.get(collection, {})
        return [rows[id]["body"].encode() for id in sorted(rows) if rows[id]["body"]]

    async def resolve(self, collection: str) -> str:
        return collection

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        taken = {row["id"]: row for row in rows}
        refused = tuple(id for id in taken if not can_be_id(id))
        for id in refused:
            del taken[id]
        self.collections.setdefault(collection, {}).update(taken)
        self.written.update({(collection, id): None for id in taken})
        if refused:
            raise RowRefused(collection, refused, "too long or no Unicode")

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        for id in ids:
            self.collections.get(collection, {}).pop(id, None)

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        rows = self.collections.get(collection, {})
        return {id: _fields_of(rows[id], fields) for id in ids if id in rows}

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        for row in list(self.collections.get(collection, {}).values()):
            if all((row.get(name) or "") == value for name, value in {"tenant": tenant, **equal}.items()):
                yield _fields_of(row, fields)


def _fields_of(row: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {"id": row["id"], **{name: row.get(name) or "" for name in fields}}


class EventClock:
    """An event takes one second, on any machine."""

    def __init__(self, now: float = _START_SECONDS) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    monotonic = now

    def tick(self) -> float:
        self._now += _EVENT_SECONDS
        return self._now


class MemoryPipeline:
    """The stages of one tenant (only the first unless `learn`), their lore, and agents that read it."""

    def __init__(self, clock: EventClock | None = None, *, learn: bool = True) -> None:
        self.clock = clock or EventClock()
        self.store = MemoryStore()
        self.index = LoreIndex()
        self.call_model: CallModel | None = None
        stages = pipeline(self.store, Metrics("in-memory"), self.clock, Settings(silent_seconds=SILENT_SECONDS))
        self._chain = Chain(stages if learn else stages[:1], self.store)
        self._offset = 0

    def session(self, agent: str, goal: str, task: str, id: str, emitted: list[Event], *, place: str = "") -> Session:
        return self.fleet(agent, emitted).session(goal, task, id, place=place)

    def fleet(self, agent: str, emitted: list[Event]) -> Fleet:
        fleet = _Fleet(agent, self)
        fleet.emitter = fleet.reviews = _Emitter(emitted, self.clock)
        fleet.replica = _Replica(self.index)
        return fleet

    async def take(self, events: Sequence[Event]) -> list[Trajectory]:
        closed = await self.run(events)
        await self._chain.settle()
        index = self.index
        for collection, id in self.store.written:
            body = self.store.collections[collection][id]["body"].encode()
            if collection == "patterns":
                index.put_pattern(Pattern.from_json(body))
            elif collection == "items" and body:
                index.put_item(MemoryItem.from_json(body))
            elif collection == "items":
                index.forget(id.partition("/")[2])
        self.store.written.clear()
        return closed

    async def run(self, events: Iterable[Event]) -> list[Trajectory]:
        """Process events with secrets masked. Return the sessions that they close."""
        records = records_of_events(events, self._offset)
        self._offset += len(records)
        outgoing = (await self._chain.run(records)).outgoing
        found = [Trajectory.from_json(each.value) for each in outgoing if each.topic == "trajectories" and each.value]
        return [each for each in found if not each.is_open]

    async def settle(self) -> None:
        await self._chain.settle()


class _Fleet(Fleet):
    def __init__(self, agent: str, pipeline: MemoryPipeline) -> None:
        super().__init__(agent, broker=_NO_BROKER, tenant=DEFAULT_TENANT, clock=pipeline.clock)
        self._lifetime.enter()  # events stay in this process
        self._pipeline = pipeline

    @property
    def call_model(self) -> CallModel | None:
        return self._pipeline.call_model


class _Emitter(Emitter):
    def __init__(self, kept: list[Event], clock: EventClock) -> None:
        super().__init__(_NO_BROKER, DEFAULT_TENANT)
        self._kept = kept
        self._clock = clock

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        self._kept.append(event._replace(time=self._clock.tick()))
        return True


class _Replica(LoreReplica):
    def __init__(self, index: LoreIndex) -> None:
        super().__init__(_NO_BROKER, DEFAULT_TENANT)
        self.index = index


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """The result of `run_logs`: sessions in stream order, and the final lore, empty unless the run learned.

    `calls`: for `CallModel.from_bytes`. `ended`: event time of the last event.
    """

    trajectories: list[Trajectory]
    patterns: list[Pattern]
    items: list[MemoryItem]
    calls: bytes
    ended: float


async def run_logs(
    sessions: Sequence[LoggedSession], *, seed: int, learn: bool, started: float = _START_SECONDS
) -> OfflineRun:
    """Process logged sessions in an order drawn from `seed`, by all stages or the first."""
    order = sorted(sessions, key=lambda each: each.session)
    Random(seed).shuffle(order)
    memory = MemoryPipeline(EventClock(started), learn=learn)
    trajectories: list[Trajectory] = []
    for start in range(0, len(order), BATCH_SESSIONS):
        batch = order[start : start + BATCH_SESSIONS]
        trajectories += await memory.run([event for session in batch for event in events_of(session, memory.clock)])
    await memory.settle()
    patterns = [Pattern.from_json(body) for body in memory.store.bodies("patterns")]
    items = [MemoryItem.from_json(body) for body in memory.store.bodies("items")]
    calls = train(trajectories).weights if learn else b""
    return OfflineRun(trajectories, patterns, items, calls, memory.clock.now())


def events_of(session: LoggedSession, clock: EventClock) -> list[Event]:
    return [
        Event(kind, DEFAULT_TENANT, session.agent, session.session, sequence, clock.tick(), data)
        for sequence, (kind, data) in enumerate(session.all_events())
    ]


_FAILED: dict[ev.Outcome, bool | None] = {"failure": True, "success": False, "unknown": None}


def call_log(logged: LoggedSession) -> CallLog:
    calls: list[Call] = []
    messages: list[str] = []
    for kind, data in logged.events:
        if kind == "message":
            messages.append(data[ev.CONTENT])
        else:
            calls.append(_call(data, "\n".join(messages)))
            messages = []
    return CallLog(
        logged.session, logged.source, logged.agent, logged.task, logged.goal, _FAILED[logged.outcome], tuple(calls)
    )


async def hear(learned: OfflineRun, sessions: Sequence[LoggedSession]) -> list[Heard]:
    memory = MemoryPipeline(EventClock(learned.ended), learn=False)
    memory.call_model = CallModel.from_bytes(learned.calls) if learned.calls else None
    for pattern in learned.patterns:
        memory.index.put_pattern(pattern)
    for item in learned.items:
        memory.index.put_item(item)
    return [await _hear(memory, logged) for logged in sessions]


async def _hear(memory: MemoryPipeline, logged: LoggedSession) -> Heard:
    before: list[Told] = []
    after: dict[int, Told] = {}
    asking = memory.session(logged.agent, logged.goal, logged.task, logged.session, [], place=logged.place)
    async with asking as session:
        start = told(session.advise())
        for kind, data in logged.events:
            if kind == "message":
                session.message(data[ev.ROLE], data[ev.CONTENT])
                continue
            tool, arguments = data[ev.TOOL], data[ev.ARGUMENTS]
            before.append(told(session.advise(tool, arguments)))
            async with session.action(tool, arguments) as action:
                if ev.ERROR_MESSAGE in data:
                    action.fail("", data[ev.ERROR_MESSAGE])
                else:
                    action.result = data[ev.RESULT]
            if ev.ERROR_MESSAGE in data:
                after[len(before) - 1] = told(session.advise())
    return Heard(call_log(logged), start, tuple(before), after)


def _call(data: dict[str, Any], before: str) -> Call:
    tool, arguments, error = data[ev.TOOL], data[ev.ARGUMENTS], data.get(ev.ERROR_MESSAGE)
    failure = None if error is None else failure_of(tool, arguments, "", error)
    said = arguments_text(data[ev.RESULT]) if error is None else error
    return Call(tool, arguments_text(arguments), said, failure, before)
