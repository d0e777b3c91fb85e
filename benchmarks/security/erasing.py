"""Erase sessions from a pipeline in memory, and count what each store still knows of them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from benchmarks.rollouts import logged, rollouts
from benchmarks.traffic import TENANT
from fleetlore.config import Settings
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.events import Event
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import SILENT_SECONDS, EventClock, MemoryPipeline, MemoryStore, events_of
from streams.offline.operator_word import States, requests, states_that
from streams.stage.base import Record
from streams.stage.operators import Forget, Operators
from streams.stages.pipeline import Chain, pipeline

SESSIONS = 200
ERASED = 50


class _Pipeline(MemoryPipeline):
    """Its stages know what is erased."""

    def __init__(self) -> None:
        super().__init__()
        self._operators = Operators()
        self.erased = self._operators.erased
        self.restart()

    def restart(self) -> None:
        """Begin with new stages, to which an event that was sent before is new."""
        settings = Settings(silent_seconds=SILENT_SECONDS)
        self.stages = pipeline(self.store, Metrics("in-memory"), self.clock, settings, operators=self._operators)
        self._chain = Chain(self.stages, self.store)


async def erased_by_store(count: int = SESSIONS, erased: int = ERASED) -> list[tuple[str, str, str, str]]:
    """A row for each store: how many of its states knew an erased session, and how many still do."""
    sessions = [logged(each) for each in rollouts(5, count)]
    gone = [session_key(each.agent, each.session) for each in Random(0).sample(sessions, erased)]
    memory = _Pipeline()
    await memory.run(_events(sessions, memory.clock))
    await memory.settle()
    hashes: dict[str, tuple[int, ...]] = {session: (stable_hash(session),) for session in gone}
    flat = {each for found in hashes.values() for each in found}

    async def knowing() -> States:
        return await states_that(lambda state: flat & state.sessions, memory.store, TENANT)

    before = await knowing()
    memory.erased.add_sessions(TENANT, flat)
    await _forget(memory, before)
    await memory.store.delete("judgments", [f"{TENANT}/{session}" for session in gone])
    after, judged = await knowing(), _judged(memory.store, gone)
    memory.restart()
    await memory.run(_events(sessions, memory.clock))  # all of it is sent again
    await memory.settle()
    again, judged_again = await knowing(), _judged(memory.store, gone)
    found = (
        ("patterns", len(before.patterns), len(after.patterns), len(again.patterns)),
        ("items", len(before.items), len(after.items), len(again.items)),
        ("judgments", erased, judged, judged_again),
    )
    said = f"that know {erased} of {count} sessions: left, and left once all is sent again"
    return [("erasure", f"{what} {said}", f"{knew}", f"{left}, {back}") for what, knew, left, back in found]


async def _forget(memory: _Pipeline, found: States) -> None:
    for value in requests(TENANT, found, Forget):
        (stage,) = [each for each in memory.stages if each.reads == value.topic]
        record = Record(topic(TENANT, value.topic), 0, 0, None, value.value, {})
        effects = await stage.process([record])
        for collection, rows in effects.rows.items():
            await memory.store.upsert(collection, rows)
    for stage in memory.stages:
        effects = await stage.process([])
        for collection, rows in effects.rows.items():
            await memory.store.upsert(collection, rows)


def _judged(store: MemoryStore, gone: Iterable[str]) -> int:
    return sum(f"{TENANT}/{session}" in store.collections["judgments"] for session in gone)


def _events(sessions: Iterable[LoggedSession], clock: EventClock) -> list[Event]:
    return [event for session in sessions for event in events_of(session, clock)]
