"""The first hint after a restart costs the same number of requests to the store, however many rows it holds."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fleetlore.recall.search import row_id
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import Pattern
from fleetlore.wire.topics import topic
from models.memory.bottom_k import SessionCounts
from models.memory.pattern_state import Observation, PatternState, Subject
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Effects, Record, Store
from streams.stages.s2_patterns import PatternsStage

ROWS = 3_000


def observed(tenant: str, *ids: str, session: int = 1) -> Record:
    values = [Observation(Subject(id, "exact", "shell"), session, 1, 1, 1, 100.0, 100.0) for id in ids]
    return Record(topic(tenant, "observations"), 0, 0, None, msgspec.json.encode(values), {})


class CountedStore:
    """Counts the requests to another store. It refuses to list rows.

    Attributes:
        asked: ids of each `get`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[list[str]] = []

    async def resolve(self, collection: str) -> str:
        return await self._store.resolve(collection)

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        await self._store.upsert(collection, rows)

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        await self._store.delete(collection, ids)

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        self.asked.append(sorted(ids))
        return await self._store.get(collection, ids, *fields)


def sessions(effects: Effects) -> dict[str, int]:
    """Sessions behind each published pattern, by its id."""
    return {each.key: Pattern.from_json(each.value).sessions for each in effects.outgoing if each.value}


async def first_hints(store: Store, tenant: str, rows: int) -> None:
    """Check what a new worker asks the store for, with `rows` patterns in it."""
    known = []
    for number in range(rows):
        state = PatternState(Subject(f"old-{number}", "exact", "shell"))
        state.add(0, SessionCounts(1, 1, 1), 100.0, 100.0)
        row = {"id": row_id(tenant, state.subject.id), "tenant": tenant, "text": "", "state": state.state_json()}
        known.append(row | {"body": state.to_pattern(tenant).to_json().decode()})
    await store.upsert("patterns", known)
    counted = CountedStore(store)
    stage = PatternsStage(counted, FakeClock(), Metrics("worker"))
    effects = await stage.process([observed(tenant, "old-7", "new")])
    assert sessions(effects)["new"] == 1
    assert counted.asked == [[row_id(tenant, "new"), row_id(tenant, "old-7")]]
    await stage.process([observed(tenant, "old-7", "new", session=2)])
    assert len(counted.asked) == 1, "states in memory are not asked for again"
    assert sessions(await stage.process([])) == {"old-7": 3, "new": 2}


async def test_on_a_store_in_memory(tenant: str) -> None:
    await first_hints(MemoryStore(), tenant, ROWS)
