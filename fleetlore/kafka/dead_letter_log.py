"""Reading a tenant's dead letters, for people and for sending them back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import TopicPartition

from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.offsets import end_offsets, observer, partitions_of
from fleetlore.wire.dead_letter import Letter, Mark, read_letter
from fleetlore.wire.topics import topic

POLL_MS = 200


async def read_letters(bootstrap: str, tenant: str, timeout_seconds: float) -> AsyncIterator[Letter | Mark]:
    """All letters and marks that lie there now, in order within a partition: a mark after its letter.

    Args:
        timeout_seconds: the longest wait for the next of them.

    Raises:
        BrokerUnavailable: nobody answers, or not for that long.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_seconds):
                consumer = await stack.enter_async_context(observer(bootstrap))
                partitions = await partitions_of(consumer, topic(tenant, "dead-letters"))
                ends = await end_offsets(consumer, partitions)
        except TimeoutError:
            raise BrokerUnavailable(f"{bootstrap} did not answer in {timeout_seconds:g} s") from None
        if not ends:
            return
        await consumer.seek_to_beginning(*partitions)
        patience = time.monotonic() + timeout_seconds
        # The position and not a count: retention deletes the first ones and transactions leave gaps.
        while [tp for tp, end in ends.items() if await consumer.position(tp) < end]:
            fetched = await consumer.getmany(timeout_ms=POLL_MS)
            if fetched:
                patience = time.monotonic() + timeout_seconds
            elif time.monotonic() > patience:
                raise BrokerUnavailable(f"{bootstrap} gave no more dead letters for {timeout_seconds:g} s")
            for tp, records in fetched.items():
                for record in records:
                    read = read_letter(record) if record.offset < ends[tp] else None
                    if read is not None:
                        yield read


async def record_at(consumer: Any, topic: str, partition: int, offset: int) -> Any:
    """The record of that offset; None where it is deleted, or was never there."""
    tp = TopicPartition(topic, partition)
    if tp not in await partitions_of(consumer, topic):
        return None
    ends = await end_offsets(consumer, [tp])
    first = (await consumer.beginning_offsets([tp]))[tp]
    if not first <= offset < ends[tp]:
        return None
    consumer.seek(tp, offset)
    while await consumer.position(tp) < ends[tp]:
        for record in (await consumer.getmany(tp, timeout_ms=POLL_MS, max_records=1)).get(tp, ()):
            # The one behind it, where compaction or a transaction left a gap.
            return record if record.offset == offset else None
    return None
