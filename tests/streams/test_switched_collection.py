"""A switch of collections while rows are on their way: they go to the collection that they were read from."""

import asyncio

from streams.offline.memory_pipeline import MemoryStore
from tests.rows import for_each
from tests.streams.log_pipeline import RIGHT, WRONG, CheckedStore, LogPipeline


class SwitchedStore(CheckedStore):
    """Its names are aliases."""

    def __init__(self) -> None:
        super().__init__()
        self.version = "main"

    async def resolve(self, collection: str) -> str:
        return f"{collection}_{self.version}"

    async def get(self, collection: str, *rest: object) -> dict[str, dict[str, object]]:
        return await MemoryStore.get(self, await self.resolve(collection), *rest)

    async def rows(self, collection: str, *rest: object, **equal: str):
        async for row in MemoryStore.rows(self, await self.resolve(collection), *rest, **equal):
            yield row


@for_each("collection", "patterns", "judgments", "items")
async def test_rows_go_to_the_collection_that_they_were_built_for(collection: str) -> None:
    pipeline = LogPipeline()
    pipeline.store = store = SwitchedStore()
    pipeline.start()
    pipeline.delivery.second_writes.begin()  # so that the writes are made once more, after the switch
    for session in pipeline.story.fleet():
        await pipeline.send(session)
    store.gates[f"{collection}_main"] = gate = asyncio.Event()
    working = asyncio.create_task(pipeline.drain())
    while f"{collection}_main" in store.gates:
        await asyncio.sleep(0)
    store.version = "b2"
    gate.set()
    await working
    pipeline.clock.advance(60)
    await pipeline.drain()
    assert store.collections[f"{collection}_main"]
    assert not store.collections.get(f"{collection}_b2", {}).keys() & store.collections[f"{collection}_main"].keys()


async def test_what_waits_is_not_written_over_the_collection_of_a_backfill() -> None:
    pipeline = LogPipeline(batch_records=100)
    pipeline.store = store = SwitchedStore()
    pipeline.start()
    patterns = pipeline.stages[2]
    await pipeline.send(pipeline.story.session("s1", WRONG, RIGHT))
    await pipeline.step()
    while await pipeline.batch(patterns, 0) or await pipeline.batch(patterns, 1):
        pass
    assert patterns.holds

    store.version = "v2"
    await pipeline.run(patterns, [])
    assert not await pipeline.bodies("patterns")
    assert not patterns.holds
    pipeline.commit()
    assert all(committed == end for committed, end in pipeline.committed("observations").values())
