"""Counting dead letters, for reports."""

from __future__ import annotations

from fleetlore.config import Settings
from fleetlore.offsets import end_offsets, observer, partitions_of
from fleetlore.topics import topic


async def count_dead_letters(settings: Settings, tenant: str) -> int:
    """Records that were ever written to the tenant's dead-letter topic.

    Raises:
        BrokerUnavailable: nobody answers there.
    """
    async with observer(settings.broker) as consumer:
        partitions = await partitions_of(consumer, topic(tenant, "dead-letters"))
        return sum((await end_offsets(consumer, partitions)).values())
