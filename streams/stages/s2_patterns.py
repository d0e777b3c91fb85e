"""Stage 2: observations → failure patterns and call health, in Milvus and on the compacted topic `patterns`.

A new failure goes out at once, for others are about to make the same call. A pattern that is known changes with nearly every
batch and says little new each time, so it is published and stored together with all that has changed, every five seconds. The
commit waits for it (`streams.stage.write_buffer`), the next batch does not: a failure that comes meanwhile is news, and a write takes a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import astuple

from fleetlore.clock import Clock
from fleetlore.stats.bottom_k import SessionCounts
from fleetlore.stats.health import degraded
from fleetlore.stats.timeline import Period
from fleetlore.wire.topics import tenant_of
from models.memory.pattern_state import PatternState
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition
from streams.stage.codec import Values
from streams.stage.cooperative import yielding
from streams.stage.observations import Observation
from streams.stage.state_cache import StateCache
from streams.stage.store import Store
from streams.stage.write_buffer import Key, WriteBuffer

WRITE_SECONDS = 5.0
MAX_WAITING = 4_000

_OBSERVATIONS: Values[Observation] = Values(Observation)


class PatternsStage(Stage):
    """See the module."""

    name = "patterns"
    reads = "observations"

    def __init__(self, store: Store, clock: Clock, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._newest_hours: defaultdict[str, dict[str, Period]] = defaultdict(dict)
        self._states: StateCache[PatternState] = StateCache(
            store, "patterns", lambda row: PatternState.restore(row["body"], row["state"])
        )
        self._held: WriteBuffer[PatternState] = WriteBuffer(clock, WRITE_SECONDS, MAX_WAITING)

    @property
    def holds(self) -> bool:
        return bool(self._held)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        # By state, and each is looked up once: a few tools and kinds of call are what most of a batch is about.
        came: defaultdict[Key, list[Observation]] = defaultdict(list)
        for record, seen in _OBSERVATIONS.read(batch, effects):
            came[tenant_of(record.topic), seen.subject.id].append(seen)
        source = self._states.source
        states = await self._states.load(came)
        if self._states.source != source:
            # A backfill has taken the name over. What waits was made of the old collection's rows and would overwrite the new
            # ones; the new collection has those events already, or gets them handed over.
            self._held.drop()
        new: dict[Key, PatternState] = {}
        for key, observations in came.items():
            # One that waits or is being written may have been dropped from memory, and is newer than what the store has.
            state = self._held.newest(key) or states.get(key)
            if state is None:
                state = new[key] = PatternState.new(*astuple(observations[0].subject))
                self._states.remember(*key, state)
            changed = False
            for seen in observations:
                saw = SessionCounts(seen.agent, seen.calls, seen.failures, seen.ended)
                changed |= state.add(seen.session, saw, seen.first, seen.last, seen.agent_name)
            if changed:
                self._held.waiting[key] = state
            effects.newest = max(effects.newest, *[seen.last for seen in observations])
        if self._held.due(batch):
            await self._write(effects)
        else:
            effects.outgoing += (_outgoing(*key, state.to_pattern(key[0]).to_json()) for key, state in new.items())
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return self._held.committable(tp, next_offset)

    def forget(self) -> None:
        self._states.forget()
        self._held.forget()
        self._newest_hours.clear()

    async def _write(self, effects: Effects) -> None:
        rows = effects.rows.setdefault("patterns", [])
        seen: set[str] = set()
        async for (tenant, id), state in yielding(list(self._held.waiting.items())):
            pattern = state.to_pattern(tenant).to_json()
            effects.outgoing.append(_outgoing(tenant, id, pattern))
            rows.append(_row(tenant, state, pattern))
            if state.level == "tool" and state.hours is not None:
                self._newest_hours[tenant][id] = state.hours.periods[0]
                seen.add(tenant)
        self._show_health(seen)
        effects.acknowledged = self._held.written_behind()

    def _show_health(self, tenants: Iterable[str]) -> None:
        """The tools' newest hour, as metrics: of all tools together, because agents may name theirs as they like."""
        if self._metrics is None:
            return
        for tenant in tenants:
            hours = self._newest_hours[tenant].values()
            newest = max(number for number, _, _ in hours)
            now = [(calls, failures) for number, calls, failures in hours if number == newest]
            self._metrics.tool_calls(tenant).set(sum(calls for calls, _ in now))
            self._metrics.tool_failures(tenant).set(sum(failures for _, failures in now))
            self._metrics.degraded_tools(tenant).set(sum(degraded(calls, failures) for calls, failures in now))


def _outgoing(tenant: str, id: str, pattern: bytes) -> Outgoing:
    return Outgoing(tenant, "patterns", id, pattern)


def _row(tenant: str, state: PatternState, pattern: bytes) -> dict[str, Any]:
    return {
        "id": row_id(tenant, state.id),
        "tenant": tenant,
        "level": state.level,
        "tool": state.tool,
        "error_class": state.error_class,
        "body": pattern.decode(),
        "state": state.state_json(),
        "text": f"{state.tool} {state.error_class} {state.template or state.shape}",
    }
