"""Run the pipeline with a store and a clock in memory, and replay logged sessions through a real agent's session."""

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
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.trajectory import Trajectory
from models.backtest import Call, CallLog, Heard, Told, told
from models.calls.training import train
from sinks.collections import can_be_id
from sinks.metrics import Metrics
from streams.stages.pipeline import Chain, pipeline, records_of_events

__all__ = ["run_logs"]

log = logging.getLogger(__name__)

_NO_BROKER = "127.0.0.1:9"
_START_SECONDS = 1_700_000_000.0
_EVENT_SECONDS = 1.0
SILENT_SECONDS = 3600.0
BATCH_SESSIONS = 128


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
        self.guard.raises = True  # figures would hide a defect
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
