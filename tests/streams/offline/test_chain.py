"""All stages chained in memory, against the same stages with topics between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from fleetlore.errors import RowRefused, StoreUnavailable
from fleetlore.wire.events import Event
from fleetlore.wire.records import BATCH_HEADERS, encode_record
from fleetlore.wire.topics import topic
from streams.offline.chain import Chain
from streams.offline.state_hash import Knowledge
from streams.stage.base import Record
from streams.stage.merging_stage import StateCache

Reference = Callable[[str, Sequence[Event]], Awaitable[Knowledge]]
TENANT = "acme"


def batches(events: Sequence[Event], size: int) -> list[list[Record]]:
    """Records of one event, `size` in a batch."""
    records = [
        Record(topic(TENANT, "events"), 0, offset, None, encode_record([event]), dict(BATCH_HEADERS))
        for offset, event in enumerate(events)
    ]
    return [records[start : start + size] for start in range(0, len(records), size)]


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_the_chain_comes_to_know_what_the_workers_do(
    memory_pipeline: Callable[..., Any], reference: Reference, size: int
) -> None:
    world = memory_pipeline(TENANT)
    events = world.story.interleaved(world.story.fleet(), seed=3)
    events.append(world.story.feedback("unsure", "failure"))
    chain = Chain(world.stages, world.store)
    processed = 0
    for batch in batches(events, size):
        processed += (await chain.run(batch)).processed
    await chain.settle()
    assert processed == len(events)
    expected = await reference(TENANT, events)
    assert expected.state_hash
    assert (await world.knowledge()) == expected
    assert world.log.read_all(topic(TENANT, "judgments")) == []


async def test_an_outage_shows_before_anything_is_built_on_it(memory_pipeline: Callable[..., Any]) -> None:
    async def away(collection: str, rows: Sequence[dict[str, Any]]) -> None:
        raise StoreUnavailable("away")

    world = memory_pipeline(TENANT)
    world.store.upsert = away
    chain = Chain(world.stages, world.store)
    first, second = (batches(world.story.session(name), 100)[0] for name in ("s1", "s2"))
    await chain.run(first)
    with pytest.raises(StoreUnavailable):
        await chain.run(second)


async def test_a_row_that_is_refused_does_not_stop_the_others(memory_pipeline: Callable[..., Any]) -> None:
    world = memory_pipeline(TENANT)
    real_upsert = world.store.upsert

    async def refuse_judgments(collection: str, rows: Sequence[dict[str, Any]]) -> None:
        if collection == "judgments":
            raise RowRefused(collection, (rows[0]["id"],), "too long")
        await real_upsert(collection, rows)

    world.store.upsert = refuse_judgments
    chain = Chain(world.stages, world.store)
    for batch in batches(world.story.interleaved(world.story.fleet(), seed=1), 7):
        await chain.run(batch)
    await chain.settle()
    knowledge = await world.knowledge()
    assert not knowledge.judgments
    assert knowledge.patterns


async def test_states_of_another_collection_are_forgotten(memory_pipeline: Callable[..., Any]) -> None:
    class Switching:
        name = "items_main"

        async def resolve(self, collection: str) -> str:
            return self.name

        async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
            return {id: {"from": self.name} for id in ids if id == "acme/both"}

        async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
            yield {"id": "acme/both"}

        async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None: ...

    store = Switching()
    states: StateCache[str] = StateCache(store, "items", lambda row: row["from"])
    keys = [("acme", "both"), ("acme", "written")]
    assert await states.load(keys) == {("acme", "both"): "items_main"}
    states.remember("acme", "written", "since")
    assert await states.load(keys) == {("acme", "both"): "items_main", ("acme", "written"): "since"}
    store.name = "items_v2"
    assert await states.load(keys) == {("acme", "both"): "items_v2"}
