"""Where partitions end, and asking for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import connect, disconnect

FETCH_WAIT_MS = 20


@asynccontextmanager
async def observer(bootstrap: str, group: str | None = None) -> AsyncIterator[Any]:
    """A consumer that is no member of a group and commits nothing; with `group` it can ask for that group's commits.

    Raises:
        BrokerUnavailable: nobody answers there.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    try:
        await connect(consumer)
    except BaseException as error:
        # Also where the caller's patience ends: its connections stay open otherwise.
        await disconnect(consumer)
        if isinstance(error, KafkaError):
            raise BrokerUnavailable(f"no Kafka broker at {bootstrap}: {error}") from error
        raise
    try:
        yield consumer
    except KafkaError as error:
        raise BrokerUnavailable(f"the broker at {bootstrap} does not answer: {error!r}") from error
    finally:
        await disconnect(consumer)


async def partitions_of(consumer: Any, topic: str) -> list[TopicPartition]:
    """All partitions of a topic; none where it does not exist."""
    # `consumer.partitions_for_topic` knows only the topics that it is assigned to, and is silent about all others.
    cluster = await consumer._client.fetch_all_metadata()
    partitions = cluster.partitions_for_topic(topic) or ()
    return [TopicPartition(topic, partition) for partition in sorted(partitions)]


async def end_offsets(consumer: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset after the last record of each partition, as of now; `consumer` is assigned to them anew.

    Read from a fetch, whose high watermark every broker gets right: tansu answers a request for the latest offset with the
    first offset of the last *batch* and one, which is too small wherever that batch holds several records.
    """
    wanted = list(partitions)
    if not wanted:
        return {}
    about = await consumer.end_offsets(wanted)
    consumer.assign(wanted)
    for partition, offset in about.items():
        consumer.seek(partition, offset)
    while any(consumer.highwater(partition) is None for partition in wanted):
        await consumer.getmany(*wanted, timeout_ms=FETCH_WAIT_MS)
    return {partition: consumer.highwater(partition) for partition in wanted}
