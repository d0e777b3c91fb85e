"""Send the contributions on the log to memory items again, so that others take the places of what is withdrawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent
from fleetlore.kafka.read import records_of
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.topics import topic
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing, split

CHUNK = 1_000


async def contribute_again(
    settings: Settings, producer: BatchProducer, tenant: str, items: Collection[str], gone: Collection[int] = ()
) -> None:
    """Send once more what lies on the log for some items, but for sessions that are gone (hashes of their ids)."""
    chunk: list[Outgoing] = []
    async for record in records_of(settings.cluster, topic(tenant, "candidates")):
        chunk += contributed(tenant, [record.value or b""], items, gone)
        if len(chunk) >= CHUNK:
            await producer.deliver(chunk)
            chunk = []
    await producer.deliver(chunk)


class _Contribution(msgspec.Struct, gc=False):
    item_id: str = ""
    session: str = ""


_read = msgspec.json.Decoder(_Contribution).decode


def contributed(
    tenant: str, values: Iterable[bytes], items: Collection[str], sessions: Collection[int]
) -> Iterator[Outgoing]:
    """Of records of `candidates`, what all but some sessions (hashes) have contributed to items."""
    gone = frozenset(sessions)
    for value in values:
        try:
            parts = split(value)
        except InvalidEvent:
            continue
        for part in parts:
            try:
                each = _read(part)
            except msgspec.DecodeError:
                continue
            if each.item_id in items and stable_hash(each.session) not in gone:
                yield Outgoing(tenant, "candidates", each.item_id, part)
