"""Filling the compacted topics of a fresh broker from what lasts: Milvus' rows and the folder of published adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fleetlore.config import Settings
from fleetlore.encoder import shared_encoder
from sinks.adapters import AdapterPublisher
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.outbox import Outbox
from streams.stage import Outgoing

CHUNK = 1_000


async def refill(settings: Settings) -> int:
    """Publish all patterns, memory items and adapters of the tenants again; return how many patterns and items.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer.
    """
    store = MilvusStore(settings.milvus, settings.milvus_token, shared_encoder(), Metrics("refill"))
    outbox = Outbox(settings.broker)
    count = 0
    try:
        await store.open()
        await outbox.start()
        chunk: list[Outgoing] = []
        async for value in _lore(store, settings):
            chunk.append(value)
            count += 1
            if len(chunk) == CHUNK:
                await outbox.deliver(chunk)
                chunk = []
        await outbox.deliver(chunk)
        async with AdapterPublisher.from_settings(settings) as publisher:
            for tenant in settings.tenants:
                await publisher.refill(tenant)
    finally:
        await outbox.stop()
        await store.close()
    return count


async def _lore(store: MilvusStore, settings: Settings) -> AsyncIterator[Outgoing]:
    for tenant in settings.tenants:
        for collection in ("patterns", "items"):
            async for row in store.rows(collection, tenant, "body"):
                if row["body"]:  # an item that still lacks a side is kept for its state only
                    yield Outgoing(tenant, collection, row["id"].partition("/")[2], row["body"].encode())
