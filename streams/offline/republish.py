"""Publish the rows of Milvus and the folder of adapters to the compacted topics again."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from fleetlore.config import Settings
from fleetlore.kafka.read import observer, partitions_of, records_of
from fleetlore.wire.adapter_manifest import ADAPTERS
from fleetlore.wire.topics import tenant_of, topic
from sinks.adapter_publisher import AdapterPublisher
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing

__all__ = ["fill_empty"]

_CHUNK = 1_000
_LORE = ("patterns", "items")
# A worker may publish a newer row between our read and our send: a second pass repairs what the first overwrote.
_PASSES = 3
_PASS_SECONDS = 1.0
_OPEN_SECONDS = 20.0
_STORE_SECONDS = 5.0

_Place = tuple[str, str, str]  # tenant, topic, key


async def _restore_topics(settings: Settings) -> int:
    async with MilvusStore.from_settings(settings) as store:
        await store.open_within(_OPEN_SECONDS)
        count = await republish(settings, store, of_empty=1)
        for kind in ADAPTERS:
            async with AdapterPublisher.from_settings(kind, settings) as publisher:
                for tenant in settings.tenants:
                    await publisher.restore(tenant)
    return count


async def fill_empty(settings: Settings) -> int:
    async with observer(settings.cluster) as consumer:
        names = {topic(tenant, name): tenant for tenant in settings.tenants for name in _LORE}
        partitions = await partitions_of(consumer, *names)
        begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
    filled = {each.topic for each in partitions if ends[each] > begins[each]}
    empty = tuple(dict.fromkeys(tenant for name, tenant in names.items() if name not in filled))
    if not empty:
        return 0
    async with MilvusStore.from_settings(settings, timeout_seconds=_STORE_SECONDS) as store:
        if not await store.has_collections():
            return 0
        return await republish(settings.with_(tenants=empty), store)


async def republish(settings: Settings, store: MilvusStore, *, of_empty: int = _PASSES) -> int:
    """`of_empty`: number of passes if the topics are empty."""
    total = 0
    async with BatchProducer(settings.cluster) as producer:
        known = await _on_topics(settings)
        for number in range(_PASSES if known else of_empty):
            if number:
                await asyncio.sleep(_PASS_SECONDS)
            sent = await _publish(producer, store, settings, known)
            total += sent
            if not sent:
                break
    return total


async def _publish(producer: BatchProducer, store: MilvusStore, settings: Settings, known: dict[_Place, int]) -> int:
    seen: set[_Place] = set()
    chunk: list[Outgoing] = []
    count = 0
    async for value in _lore(store, settings.tenants):
        place = value.tenant, value.topic, value.key
        seen.add(place)
        if known.get(place) == hash(value.value):
            continue
        known[place] = hash(value.value)
        chunk.append(value)
        count += 1
        if len(chunk) == _CHUNK:
            await producer.deliver(chunk)
            chunk = []
    gone = [Outgoing(*place, None) for place in known.keys() - seen]
    for each in gone:
        del known[each.tenant, each.topic, each.key]
    await producer.deliver([*chunk, *gone])
    return count + len(gone)


async def _lore(store: MilvusStore, tenants: Iterable[str]) -> AsyncIterator[Outgoing]:
    for tenant in tenants:
        for collection in _LORE:
            async for row in store.rows(collection, tenant, "body"):
                if row["body"]:  # an incomplete item has only state
                    yield Outgoing(tenant, collection, row["id"].partition("/")[2], row["body"].encode())


async def _on_topics(settings: Settings) -> dict[_Place, int]:
    known: dict[_Place, int] = {}
    names = [topic(tenant, name) for tenant in settings.tenants for name in _LORE]
    async for record in records_of(settings.cluster, *names):
        place = tenant_of(record.topic), record.topic.rpartition(".")[2], (record.key or b"").decode("utf-8", "replace")
        if record.value is None:
            known.pop(place, None)
        else:
            known[place] = hash(record.value)
    return known


if __name__ == "__main__":
    asyncio.run(_restore_topics(Settings.from_env()))
