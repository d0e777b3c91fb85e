"""Read a tenant's dead letters, to show them and to send them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from aiokafka import TopicPartition

from fleetlore.cluster import Bootstrap
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_until
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, read_dead_letter
from fleetlore.wire.topics import topic


async def read_dead_letters(
    bootstrap: Bootstrap, tenant: str, timeout_seconds: float
) -> AsyncIterator[DeadLetterRecord | Mark]:
    """Yield all dead letters and marks that exist now, in order within a partition: a mark after its letter.

    Args:
        timeout_seconds: the longest wait for the next of them.

    Raises:
        BrokerUnavailable: no broker answers, or not for that long.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_seconds):
                consumer = await stack.enter_async_context(observer(bootstrap))
                ends = await end_offsets(consumer, await partitions_of(consumer, topic(tenant, "dead-letters")))
        except TimeoutError:
            raise BrokerUnavailable(f"{bootstrap} did not answer in {timeout_seconds:g} s") from None
        if not ends:
            return
        await consumer.seek_to_beginning(*ends)
        async for records in read_until(consumer, ends, stall_seconds=timeout_seconds):
            for record in records:
                before_end = record.offset < ends[TopicPartition(record.topic, record.partition)]
                if before_end and (read := read_dead_letter(record)) is not None:
                    yield read
