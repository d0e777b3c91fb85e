"""Write a tenant's lore to a file, and merge a file into a tenant's lore.

An import asks the owners of the states (`Adopt`). So it merges with what the tenant learned itself, may be repeated,
and runs beside live workers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from fleetlore.adapters.signatures import SigningKey
from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.store.search import row_id
from fleetlore.wire.decode import json_reader
from fleetlore.wire.lore import Decision
from fleetlore.wire.topics import topic
from sinks.milvus import MilvusStore
from streams.lore.lore_file import KINDS, LoreFile, written
from streams.offline.drain import BEHIND, wait_drained
from streams.offline.operator_word import Deliver, beside_workers
from streams.stage.base import ListedStore, Outgoing, Store
from streams.stage.operators import Erasure

__all__ = ["export_lore", "import_lore", "known_of"]

_COLLECTIONS = ("patterns", "items")
_CHUNK = 1_000
_READ_SECONDS = 30.0


async def export_lore(settings: Settings, tenant: str, key: SigningKey | None) -> AsyncIterator[bytes]:
    """Yield the lines of a file of the tenant's patterns, items, decisions and erasures.

    Raises:
        StoreUnavailable, BrokerUnavailable: the file is incomplete, which an import tells from its last line.
    """
    records = await _records(settings, tenant)
    async with MilvusStore.from_settings(settings) as store:
        async for line in written(tenant, time.time(), rows_of(store, tenant, records), key):
            yield line


async def rows_of(
    store: ListedStore, tenant: str, records: Iterable[tuple[str, Decision | Erasure]]
) -> AsyncIterator[tuple[str, str, str, str]]:
    for kind, record in records:
        yield kind, record.key, record.to_json().decode(), ""
    for collection in _COLLECTIONS:
        async for row in store.rows(collection, tenant, "body", "state"):
            if row["state"]:  # an empty row once held an erased session
                yield collection, row["id"].partition("/")[2], row["body"], row["state"]


async def import_lore(settings: Settings, tenant: str, file: LoreFile, timeout_seconds: float) -> None:
    """Merge a file into the tenant's lore, and wait until the workers have stored and published it.

    Raises:
        StoreUnavailable, BrokerUnavailable: run it again; nothing is merged twice.
        StackError: the workers did not finish in time; run it again.
    """
    known = {(kind, record.key): record.time for kind, record in await _records(settings, tenant)}
    async with beside_workers(settings, tenant, timeout_seconds) as (_, producer):
        await deliver(file, known, producer.deliver)
        await wait_drained(settings, tenant, timeout_seconds, BEHIND)


async def deliver(file: LoreFile, known: dict[tuple[str, str], float], send: Deliver) -> None:
    """Send a file's values. Decisions that are not newer than those known (by kind and key) are left out."""
    chunk: list[Outgoing] = []
    for value in file.values():
        kind = KINDS.get(value.topic)
        record = kind and json_reader(kind)(value.value or b"")
        if record is not None and record.time <= known.get((value.topic, value.key), 0.0):
            continue
        chunk.append(value)
        if isinstance(record, Decision):
            history = [place for place in record.records if place[0] != value.topic]
            chunk += [Outgoing(value.tenant, name, key, value.value) for name, key in history]
        if len(chunk) >= _CHUNK:
            await send(chunk)
            chunk = []
    await send(chunk)


async def known_of(settings: Settings, tenant: str, file: LoreFile) -> Counter[str]:
    """Return how many patterns and items of a file the tenant has already, by collection."""
    async with MilvusStore.from_settings(settings) as store:
        return await known_in(store, tenant, file)


async def known_in(store: Store, tenant: str, file: LoreFile) -> Counter[str]:
    found = Counter[str]()
    waiting: dict[str, list[str]] = {"observations": [], "candidates": []}
    names = dict(zip(waiting, _COLLECTIONS, strict=True))
    for value in file.values():
        if value.topic in waiting:
            waiting[value.topic].append(row_id(tenant, value.key))
        for name, ids in waiting.items():
            if len(ids) == _CHUNK:
                found[names[name]] += len(await store.get(names[name], ids, "id"))
                ids.clear()
    for name, ids in waiting.items():
        found[names[name]] += len(await store.get(names[name], ids, "id")) if ids else 0
    return found


async def _records(settings: Settings, tenant: str) -> list[tuple[str, Decision | Erasure]]:
    newest: dict[tuple[str, str], Decision | Erasure] = {}
    for kind, type_ in KINDS.items():
        for record in await read_to_end(settings.cluster, [topic(tenant, kind)], _READ_SECONDS):
            key = kind, (record.key or b"").decode("utf-8", "replace")
            newest.pop(key, None)
            if record.value is not None:
                with suppress(ValueError):  # another release's format
                    newest[key] = json_reader(type_)(record.value)
    return [(kind, record) for (kind, _), record in newest.items()]
