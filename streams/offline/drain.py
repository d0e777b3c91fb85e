"""Knowing when the pipeline has worked in everything that was sent.

Stages are looked at in the order of the flow. A stage commits only after what it made was acknowledged on the next topic, so
once a stage has committed all of its topic, everything that it will ever make of it lies on the topics looked at later. What a
language model says of sessions afterwards (`streams.stages.s5_opinions.stage`) is not waited for: it comes when it comes, as feedback does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from fleetlore.wire.topics import topic

FLOW = ("events", "observations", "trajectories", "candidates")
POLL_SECONDS = 0.05


async def wait_drained(settings: Settings, tenant: str, timeout_seconds: float) -> None:
    """Wait until the workers have committed all that lies on the tenant's topics now, and all that follows from it.

    Raises:
        BrokerUnavailable: nobody answers there.
        StackError: the time is up; the text says which topic still has how many records to go.
    """
    name, remaining = "", 0
    async with observer(settings.broker, settings.group) as consumer:
        try:
            async with asyncio.timeout(timeout_seconds):
                for name in FLOW:
                    while remaining := await _remaining(consumer, topic(tenant, name)):
                        await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise StackError(
                f"not drained within {timeout_seconds:.0f} s: {remaining} records of {topic(tenant, name)} are not committed"
            ) from None


async def _remaining(consumer: Any, name: str) -> int:
    partitions = await partitions_of(consumer, name)
    ends = await end_offsets(consumer, partitions)
    return sum([end - (await consumer.committed(partition) or 0) for partition, end in ends.items()])
