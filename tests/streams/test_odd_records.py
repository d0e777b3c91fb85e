"""A worker process on a real broker and Milvus goes on behind thousands of odd records and batches."""

import asyncio
import struct
import time
from collections import Counter
from random import Random

import pytest
from aiokafka import TopicPartition

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.kafka.batches import Unreadable
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from tests.doubles.raw_batches import Raw, batch, produce
from tests.fuzz import batches, records
from tests.streams.broker_pipeline import DRAIN_SECONDS, BrokerPipeline, LonePipeline, StartWorker
from tests.streams.log_pipeline import PARTITIONS

RECORDS, BATCHES, PER_BATCH = 3_000, 200, 20
# Place of the last record's offset, counted from the first, in a batch.
_LAST_OFFSET = 23


async def test_a_checksum_that_fails_costs_no_record_of_another_partition(broker: EmbeddedBroker, tenant: str) -> None:
    settings, name = Settings(broker=broker.address, tenants=(tenant,), partitions=8), topic(tenant, "events")
    await ensure_topics(settings)
    for partition in range(8):
        for number in range(5):
            produce(broker.address, name, batch([Raw()], crc=(partition % 2) * (8 * number + partition)), partition)
    found = Counter[tuple[int, bool]]()
    async with connected(make_consumer(settings.cluster)) as consumer:
        consumer.assign(partitions := [TopicPartition(name, number) for number in range(8)])
        await consumer.seek_to_beginning(*partitions)
        async with asyncio.timeout(120):
            while found.total() < 40:
                for each in (await consumer.getmany(timeout_ms=100)).values():
                    found.update((record.partition, isinstance(record, Unreadable)) for record in each)
    assert found == {(partition, bool(partition % 2)): 5 for partition in range(8)}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_good_session_among_odd_records_is_judged(
    lone_pipeline: LonePipeline,
    milvus: str,
    start_worker: StartWorker,
) -> None:
    pipeline = await lone_pipeline(milvus)
    worker, random = start_worker(pipeline.settings), Random("live")
    good = [pipeline.story.session(f"good#{number}", agent=f"good-{number}") for number in range(20)]
    await pipeline.send([event for session in good[:10] for event in session])
    by_place: dict[tuple[str, int], list[Raw]] = {}
    # On a thread: the first one runs a pipeline in memory, for its values.
    for odd in await asyncio.to_thread(lambda: [records.make(random) for _ in range(RECORDS)]):
        value = None if odd.value is None else odd.value.replace(records.TENANT.encode(), pipeline.tenant.encode())
        headers = [(name.encode("utf-8", "surrogatepass"), value) for name, value in odd.headers]
        by_place.setdefault((odd.topic, odd.partition), []).append(Raw(value, odd.key, headers))
    sent, now = Counter[bool](), int(time.time() * 1000)
    for (name, partition), raws in by_place.items():
        for start in range(0, len(raws), PER_BATCH):
            sent[await _sent(pipeline, name, partition, batch(raws[start : start + PER_BATCH], time_ms=now))] += 1
    for each in (batches.make(random) for _ in range(BATCHES)):
        # Apache Kafka refuses a batch whose offsets are not as many as its records. tansu counts on by them, and gives
        # the next batch an offset that is taken.
        if struct.unpack_from(">i", each.odd, _LAST_OFFSET)[0] == each.next_offset - 1:
            sent[await _sent(pipeline, "events", random.randrange(PARTITIONS), each.odd)] += 1
    await pipeline.send([event for session in good[10:] for event in session])
    left = {session[0].session for session in good}
    async with asyncio.timeout(DRAIN_SECONDS):
        while left := left - {session for session, _, _ in (await pipeline.knowledge()).judgments}:
            await asyncio.sleep(0.1)
    letters = await pipeline.dead_letters()
    assert len(letters) > RECORDS / 3 and all(headers["dlq.reason"] for headers, _ in letters)
    assert sent[True] > sum(sent.values()) / 2, f"the broker has refused most of them: {sent}"
    assert worker.poll() is None


async def _sent(pipeline: BrokerPipeline, name: str, partition: int, content: bytes) -> bool:
    """Whether the broker took a batch; it may refuse one, or close the connection."""
    try:
        address, full = pipeline.settings.broker, topic(pipeline.tenant, name)
        error, _ = await asyncio.to_thread(produce, address, full, content, partition)
    except (AssertionError, OSError):
        return False
    return not error
