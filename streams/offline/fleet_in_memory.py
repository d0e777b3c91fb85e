"""A fleet without a broker: real sessions and advice, real stages, everything in one process and on a clock of its own.

An agent's events are encoded and masked as the emitter does it and run through all stages; what these write is put into the index
in which the agents look lore up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from fleetlore.agent.fleet import Fleet, Session
from fleetlore.emit.emitter import Emitter
from fleetlore.emit.encode import encode_event
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.tenants import DEFAULT_TENANT
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import json_arrays
from streams.offline.chain import Chain
from streams.stage.base import Record
from streams.stages.pipeline import pipeline

NOWHERE = "127.0.0.1:9"
START_SECONDS = 1_700_000_000.0
EVENT_SECONDS = 1.0
SILENT_SECONDS = 3600.0


class FleetInMemory:
    """The pipeline of one tenant, its lore, and agents' sessions.

    Attributes:
        index: what every agent knows.
    """

    def __init__(self) -> None:
        self.clock = EventClock()
        self.index = LoreIndex()
        self._rows = IndexedRows(self.index, self.clock)
        self._chain = Chain(pipeline(self._rows, Metrics("in-memory"), self.clock, SILENT_SECONDS), self._rows)
        self._offset = 0

    def session(self, agent: str, goal: str, task: str, id: str, emitted: list[Event]) -> Session:
        """A session whose events are put into `emitted`; `take` them when it has ended."""
        fleet = Fleet(agent, broker=NOWHERE, tenant=DEFAULT_TENANT, clock=self.clock)
        fleet.emitter, fleet.replica = _Emitter(emitted, self.clock), _Replica(self.index)
        return fleet.session(goal, task, id)

    async def take(self, events: Sequence[Event]) -> None:
        """Work events in: all agents know of them from then on."""
        records = [
            Record(topic(DEFAULT_TENANT, "events"), 0, self._offset + place, None, value, {})
            for place, value in enumerate(json_arrays([encode_event(event) for event in events]))
        ]
        self._offset += len(records)
        await self._chain.run(records)
        await self._chain.settle()


class EventClock:
    """The run's own time: each event takes a second, so that nothing depends on how fast the machine is."""

    def __init__(self) -> None:
        self._now = START_SECONDS

    def now(self) -> float:
        return self._now

    monotonic = now

    def tick(self) -> float:
        self._now += EVENT_SECONDS
        return self._now


class IndexedRows:
    """A store (`streams.stage.base.Store`) of dictionaries; lore that is written becomes known at once."""

    def __init__(self, index: LoreIndex, clock: EventClock) -> None:
        self._index = index
        self._clock = clock
        self._collections: dict[str, dict[str, dict[str, Any]]] = {}

    async def resolve(self, collection: str) -> str:
        return collection

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        known = self._collections.setdefault(collection, {})
        for row in rows:
            before = known.get(row["id"])
            known[row["id"]] = row
            if collection == "patterns":
                self._index.put_pattern(Pattern.from_json(row["body"].encode()), self._clock.now())
            elif collection == "items" and row["body"]:
                self._index.put_item(MemoryItem.from_json(row["body"].encode()), self._clock.now())
            elif collection == "items" and before is not None and before["body"]:
                self._index.forget_item(msgspec.json.decode(before["body"])["id"])

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        rows = self._collections.get(collection, {})
        return {id: rows[id] for id in ids if id in rows}

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        for row in list(self._collections.get(collection, {}).values()):
            if all(row.get(name) == value for name, value in {"tenant": tenant, **equal}.items()):
                yield row


class _Emitter(Emitter):
    """Keeps what it is given, each event with the run's own time."""

    def __init__(self, kept: list[Event], clock: EventClock) -> None:
        super().__init__(NOWHERE, DEFAULT_TENANT)
        self._kept = kept
        self._clock = clock

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        self._kept.append(event._replace(time=self._clock.tick()))
        return True


class _Replica(LoreReplica):
    """Knows what the run's index knows."""

    def __init__(self, index: LoreIndex) -> None:
        super().__init__(NOWHERE, DEFAULT_TENANT)
        self.index = index
