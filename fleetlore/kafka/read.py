"""Read topics up to their current end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from typing import Any

from aiokafka import ConsumerRecord, OffsetAndMetadata, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from fleetlore.cluster import Bootstrap
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.batches import readable
from fleetlore.kafka.client import connect, connections, disconnect, make_consumer, no_broker
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, read_dead_letter
from fleetlore.wire.topics import topic

_FETCH_WAIT_MS = 20
POLL_MS = 200
# aiokafka finds a moved leader only by this refresh.
_METADATA_AGE_MS = 5_000
# Bounds the cost of a hanging broker; aiokafka's default is 40 s.
_REQUEST_MS = 8_000
# The client itself waits without end for a lost broker.
_STALL_SECONDS = 60.0


async def read_dead_letters(
    bootstrap: Bootstrap, tenant: str, timeout_seconds: float
) -> AsyncIterator[DeadLetterRecord | Mark]:
    """Yield the present dead letters and marks: a mark after its letter."""
    async for record in records_of(bootstrap, topic(tenant, "dead-letters"), stall_seconds=timeout_seconds):
        if (read := read_dead_letter(record)) is not None:
            yield read


@asynccontextmanager
async def observer(bootstrap: Bootstrap, group: str | None = None) -> AsyncIterator[Any]:
    """Yield a consumer without group membership and commits."""
    consumer = make_consumer(
        bootstrap,
        group=group,
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        metadata_max_age_ms=_METADATA_AGE_MS,
        request_timeout_ms=_REQUEST_MS,
    )
    try:
        await connect(consumer)
    except KafkaError as error:
        raise no_broker(bootstrap, error) from error
    try:
        yield consumer
    except KafkaError as error:
        raise BrokerUnavailable(f"the broker at {bootstrap} does not answer: {error!r}") from error
    finally:
        await disconnect(consumer)


async def partitions_of(consumer: Any, *topics: str) -> list[TopicPartition]:
    """Return all partitions of the topics, none for a missing one, which is not created."""
    # `consumer.partitions_for_topic` knows only assigned topics.
    cluster = await connections(consumer).fetch_all_metadata()
    return [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(cluster.partitions_for_topic(topic) or ())
    ]


async def committed_offsets(
    admin: Any, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a group's commit of each partition; offset -1 without one.

    A partition that the coordinator refuses is missing. Raises KafkaError: the coordinator did not answer.
    """
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    if partitions:
        found = await admin.list_consumer_group_offsets(group, partitions=list(partitions))
    if missing := set(partitions) - found.keys():
        raise GroupCoordinatorNotAvailableError(f"{group}: not said what is committed on {min(missing)}")
    return found


async def end_offsets(consumer: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset after the last record of each partition, and reassign `consumer`.

    Open transactions end it. It is read from a fetch, because tansu answers with the first offset of the last *batch*
    plus one.
    """
    wanted = list(partitions)
    if not wanted:
        return {}
    about = await consumer.end_offsets(wanted)
    consumer.assign(wanted)
    for partition, offset in about.items():
        consumer.seek(partition, offset)
    while any(consumer.last_stable_offset(partition) is None for partition in wanted):
        await consumer.getmany(*wanted, timeout_ms=_FETCH_WAIT_MS)
    return {partition: consumer.last_stable_offset(partition) for partition in wanted}


async def read_until(
    consumer: Any, ends: Mapping[TopicPartition, int], *, most: int | None = None, stall_seconds: float = inf
) -> AsyncIterator[list[ConsumerRecord]]:
    """Yield fetches of at most `most` records until `consumer` has passed `ends`.

    The last one may reach beyond. Raises BrokerUnavailable: no record came for `stall_seconds`.
    """
    came = time.monotonic()
    # Retention and transactions leave gaps, so compare positions and not counts.
    while unread := [partition for partition, end in ends.items() if await consumer.position(partition) < end]:
        fetched = await consumer.getmany(*unread, timeout_ms=POLL_MS, max_records=most)
        if fetched:
            if read := [record for records in fetched.values() for record in readable(records)]:
                yield read
            came = time.monotonic()
        elif time.monotonic() - came > stall_seconds:
            raise BrokerUnavailable(f"the broker gave no more records of {unread[0].topic} for {stall_seconds:g} s")


async def records_of(
    bootstrap: Bootstrap, *topics: str, stall_seconds: float = _STALL_SECONDS
) -> AsyncIterator[ConsumerRecord]:
    """Yield the records of topics up to their current end, without holding them in memory."""
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(None if stall_seconds == inf else stall_seconds):
                reader = await stack.enter_async_context(observer(bootstrap))
                ends = await end_offsets(reader, await partitions_of(reader, *topics))
        except TimeoutError:
            raise BrokerUnavailable(f"{bootstrap} did not answer in {stall_seconds:g} s") from None
        if ends:
            await reader.seek_to_beginning(*ends)
            async for records in read_until(reader, ends, stall_seconds=stall_seconds):
                for record in records:
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                        yield record


async def read_to_end(bootstrap: Bootstrap, topics: Iterable[str], timeout_seconds: float) -> list[ConsumerRecord]:
    """Return all records of the topics, in order within a partition."""
    names = list(topics)
    try:
        async with asyncio.timeout(timeout_seconds):
            return [record async for record in records_of(bootstrap, *names, stall_seconds=inf)]
    except (TimeoutError, OSError) as error:
        what = ", ".join(names)
        raise BrokerUnavailable(
            f"{what} could not be read from broker {bootstrap} within {timeout_seconds:g} s"
        ) from error


async def record_at(consumer: Any, topic: str, partition: int, offset: int) -> ConsumerRecord | None:
    """Return the record at that offset, or None if there is none."""
    tp = TopicPartition(topic, partition)
    if tp not in await partitions_of(consumer, topic):
        return None
    ends = await end_offsets(consumer, [tp])
    first = (await consumer.beginning_offsets([tp]))[tp]
    if not first <= offset < ends[tp]:
        return None
    consumer.seek(tp, offset)
    async for (record,) in read_until(consumer, ends, most=1):
        # Compaction or a transaction may leave a gap here.
        return record if record.offset == offset else None
    return None
