"""Store facts in Milvus and on the topic `items`, beside the learned items and apart from them.

Facts come from documents and not from events, so processing the events again does not restore them: a backfill copies
them to the collections that it fills.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import MemoryItem
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore, row_id
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing, Store

__all__ = ["forget_facts", "load_facts"]

_COLLECTION = "items"


async def load_facts(
    settings: Settings, tenant: str, sources: Collection[str], facts: Sequence[MemoryItem]
) -> tuple[int, int]:
    """Replace all facts of some documents (`sources`) by `facts`; return how many are new and how many were deleted.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; load them again.
    """
    async with MilvusStore.from_settings(settings, Metrics("facts")) as store:
        await store.open()
        known = await known_facts(store, tenant)
        ids = {fact.id for fact in facts}
        gone = [fact for fact in known if fact.source in sources and fact.id not in ids]
        await _write_facts(settings, store, tenant, facts, gone)
        return len(ids - {fact.id for fact in known}), len(gone)


async def forget_facts(settings: Settings, tenant: str, ids: Collection[str], source: str = "") -> list[MemoryItem]:
    """Delete facts by id, or all of a document; return the deleted ones.

    Raises:
        ConfigError: there is no such fact, or none of the document; then none is deleted.
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; forget them again.
    """
    async with MilvusStore.from_settings(settings, Metrics("facts")) as store:
        await store.open()
        known = await known_facts(store, tenant)
        if unknown := set(ids) - {fact.id for fact in known}:
            raise ConfigError(f"tenant {tenant} has no fact {', '.join(sorted(unknown))}: give whole ids")
        if source and source not in {fact.source for fact in known}:
            raise ConfigError(f"tenant {tenant} has no fact of the document {source}")
        gone = [fact for fact in known if fact.id in ids or (source and fact.source == source)]
        await _write_facts(settings, store, tenant, (), gone)
        return gone


async def known_facts(store: Store, tenant: str) -> list[MemoryItem]:
    """Return all facts of a tenant, sorted by id.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    rows = [row["body"] async for row in store.rows(_COLLECTION, tenant, "body", kind="fact")]
    return sorted((MemoryItem.from_json(body.encode()) for body in rows if body), key=lambda fact: fact.id)


async def _write_facts(
    settings: Settings, store: Store, tenant: str, facts: Iterable[MemoryItem], gone: Iterable[MemoryItem]
) -> None:
    """Write some facts and delete others, in the store and then on the topic."""
    facts, gone = list(facts), list(gone)
    await store.resolve(_COLLECTION)
    emptied = [{**_row(fact), "kind": "", "body": "", "text": ""} for fact in gone]
    await store.upsert(_COLLECTION, [*map(_row, facts), *emptied])
    async with BatchProducer(settings.cluster) as producer:
        await producer.deliver(
            [
                *(Outgoing(tenant, _COLLECTION, fact.id, fact.to_json()) for fact in facts),
                *(Outgoing(tenant, _COLLECTION, fact.id, None) for fact in gone),
            ]
        )


async def carry_over(live: Store, other: Store, tenants: Iterable[str]) -> None:
    """Copy the facts of all tenants from the live collections to those of another version.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    await live.resolve(_COLLECTION)
    for tenant in tenants:
        await other.upsert(_COLLECTION, [_row(fact) for fact in await known_facts(live, tenant)])


def _row(fact: MemoryItem) -> dict[str, Any]:
    return {
        "id": row_id(fact.tenant, fact.id),
        "tenant": fact.tenant,
        "kind": fact.kind,
        "tool": fact.tool,
        "body": fact.to_json().decode(),
        "text": fact.text,
    }
