"""Read from the log what models were given besides their goals."""

from __future__ import annotations

import msgspec

from fleetlore.config import Settings
from fleetlore.kafka.read import records_of
from fleetlore.wire.definitions import TOPIC, Definitions, id_of
from fleetlore.wire.topics import topic


async def definitions_on(settings: Settings, tenant: str) -> dict[str, Definitions]:
    """All that the tenant's topic holds, by the hash that sessions name them by. What has another hash is left out.

    Raises:
        BrokerUnavailable: no broker answers there.
    """
    found: dict[str, Definitions] = {}
    async for record in records_of(settings.cluster, topic(tenant, TOPIC)):
        value = record.value or b""
        if record.key == id_of(value).encode():
            try:
                found[id_of(value)] = Definitions.from_json(value)
            except msgspec.DecodeError:
                continue
    return found
