"""A worker on Apache Kafka goes on behind records that no client can read, and judges every session among them."""

import asyncio
from random import Random

import pytest

from fleetlore.kafka.read import read_dead_letters
from fleetlore.wire.dead_letter import UNREADABLE, DeadLetterRecord
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.doubles.raw_batches import CODECS, Raw, batch, produce
from tests.streams.broker_pipeline import StartWorker, known

ODD = Raw(b"{}", b"x", [(b"\xff\xfe", b"1")])
GOOD = Raw(b"{}")
BOMB = 100 * 1024 * 1024
DRAIN_SECONDS = 120.0


def odd_batches() -> list[bytes]:
    found = [batch([GOOD, ODD, GOOD], name) for name in CODECS]
    found += [batch([Raw(b"0" * BOMB)], name) for name in ("zstd", "gzip")]
    return [*found, batch([Raw(b"{}", b"x", [(b"ce_specversion", None), (b"", None)])])]


@pytest.mark.slow
async def test_a_worker_goes_on_behind_what_cannot_be_read(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    settings, address = three.settings(milvus, tenant).with_(partitions=1), three.address
    await ensure_topics(settings)
    worker = await asyncio.to_thread(start_worker, settings)
    events, places = fleet_events(tenant, 1, 6), set[tuple[int, int]]()
    half = len(events) // 2
    async with in_order(address, tenant, Random(1)) as send:
        await send(events[:half])
        for number, content in enumerate(odd_batches()):
            error, offset = await asyncio.to_thread(produce, address, topic(tenant, "events"), content)
            if not error:  # a broker may refuse it, too
                places.add((0, offset + (1 if number < len(CODECS) else 0)))
        await send(events[half:])
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    judged = {session for session, _, _ in (await known(settings.milvus, tenant)).judgments}
    assert judged == {each.session for each in events}
    letters = [each async for each in read_dead_letters(address, tenant, 30.0) if isinstance(each, DeadLetterRecord)]
    unreadable = {(each.partition, each.offset) for each in letters if each.reason == UNREADABLE}
    assert unreadable and unreadable <= places
    assert {(0, offset) for _, offset in places} - unreadable <= {max(places)}, "the last one can be read"
    assert worker.poll() is None
