"""Logged sessions through the pipeline's own stages, in memory: what a fleet would know after them, without broker or Milvus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from fleetlore.emit.encode import encode_event
from fleetlore.tenants import DEFAULT_TENANT
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from sinks.metrics import Metrics
from sinks.producer import json_arrays
from streams.offline.chain import Chain
from streams.offline.logs import LoggedSession
from streams.stage.base import Record
from streams.stages.pipeline import pipeline
from streams.stages.s1_sessions.stage import SessionsStage

# Logs have no times, so the rehearsal has a clock of its own, the same in every run: it begins here and each event takes a second.
START_SECONDS = 1_700_000_000.0
EVENT_SECONDS = 1.0
BATCH_SESSIONS = 128
SILENT_SECONDS = 3600.0

_read_trajectory = msgspec.json.Decoder(Trajectory).decode


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What came out.

    Attributes:
        trajectories: in the order of the stream, each with the ending and reward that the log gave.
        patterns, items: what the fleet knows in the end; none unless it learned.
        ended: event time of the last event, in seconds since the Unix epoch.
    """

    trajectories: list[Trajectory]
    patterns: list[Pattern]
    items: list[MemoryItem]
    ended: float


async def rehearse(
    sessions: Sequence[LoggedSession],
    *,
    seed: int,
    learn: bool,
    started: float = START_SECONDS,
    progress: Callable[[int], None] = lambda done: None,
) -> Rehearsed:
    """Put the sessions, in an order drawn from `seed`, through all stages, or (not `learn`) through the first alone.

    Secrets are masked as an agent masks them. `progress` is told how many sessions are done.
    """
    order = sorted(sessions, key=lambda each: each.session)
    Random(seed).shuffle(order)
    clock, rows = _LogClock(started), _Rows()
    stages = pipeline(rows, Metrics("rehearsal"), clock, SILENT_SECONDS)
    chain = Chain(stages if learn else [each for each in stages if isinstance(each, SessionsStage)], rows)
    trajectories: list[Trajectory] = []
    offset = 0
    for start in range(0, len(order), BATCH_SESSIONS):
        batch = order[start : start + BATCH_SESSIONS]
        parts = [encode_event(event) for session in batch for event in clock.events_of(session)]
        records = [
            Record(topic(DEFAULT_TENANT, "events"), 0, offset + place, None, value, {})
            for place, value in enumerate(json_arrays(parts))
        ]
        offset += len(records)
        effects = await chain.run(records)
        trajectories += [
            _read_trajectory(each.value) for each in effects.outgoing if each.topic == "trajectories" and each.value
        ]
        progress(start + len(batch))
    await chain.settle()
    patterns = [Pattern.from_json(body) for body in rows.bodies("patterns")]
    items = [MemoryItem.from_json(body) for body in rows.bodies("items")]
    return Rehearsed(trajectories, patterns, items, clock.now())


class _LogClock:
    """The time of the log: as a clock it says when the last event was."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    monotonic = now

    def events_of(self, session: LoggedSession) -> list[Event]:
        events = []
        for sequence, (kind, data) in enumerate(session.all_events()):
            self._now += EVENT_SECONDS
            events.append(Event(kind, DEFAULT_TENANT, session.agent, session.session, sequence, self._now, data))
        return events


class _Rows:
    """A store (`streams.stage.base.Store`) of dictionaries."""

    def __init__(self) -> None:
        self._collections: dict[str, dict[str, dict[str, Any]]] = {}

    def bodies(self, collection: str) -> list[bytes]:
        """What is known, in the order of ids; a row without a body is a state that is no lore yet."""
        rows = self._collections.get(collection, {})
        return [rows[id]["body"].encode() for id in sorted(rows) if rows[id]["body"]]

    async def resolve(self, collection: str) -> str:
        return collection

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        self._collections.setdefault(collection, {}).update({row["id"]: row for row in rows})

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        rows = self._collections.get(collection, {})
        return {id: rows[id] for id in ids if id in rows}

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        for row in list(self._collections.get(collection, {}).values()):
            if all(row.get(name) == value for name, value in {"tenant": tenant, **equal}.items()):
                yield row
