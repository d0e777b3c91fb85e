"""Compaction removes records while a replica is offline."""

import asyncio

import pytest

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing import FakeClock
from fleetlore.wire.topics import DAY_SECONDS, topic
from sinks.topics import ensure_topics
from tests.build import memory_item
from tests.cluster.kafka_cluster import KafkaCluster

# Age the records as a week and an hour would.
SOON = "segment.ms=1000,delete.retention.ms=1000,min.cleanable.dirty.ratio=0.01,file.delete.delay.ms=100"
COMPACTED_SECONDS = 300.0


@pytest.mark.slow
async def test_what_was_forgotten_and_compacted_away_is_not_kept_by_a_replica_that_comes_back(
    three: KafkaCluster, tenant: str
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), partitions=1, replication=3))
    name = topic(tenant, "items")
    of_topic = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", SOON)
    await asyncio.to_thread(three.configure, *of_topic)
    clock = FakeClock(0.0)
    replica = LoreReplica(three.address, tenant, clock=clock)

    async def known() -> set[str]:
        await replica.start()
        assert await replica.caught_up(120)
        await replica.close()
        return set(replica.index.items)

    async with connected(make_producer(three.address)) as producer:

        async def put(id: str, value: bytes | None) -> None:
            await producer.send_and_wait(name, value, key=id.encode())

        for id in ("gone", "stays"):
            await put(id, memory_item(id, tenant="x", pattern="class").to_json())
        assert await known() == {"gone", "stays"}
        await put("gone", None)
        async with asyncio.timeout(COMPACTED_SECONDS):
            while any(each.key == b"gone" for each in await read_to_end(three.address, [name], 120)):
                await asyncio.sleep(2.0)
                await put("stays", memory_item("stays", tenant="x", pattern="class").to_json())
        # No record says any more that it is gone, so the time that has passed must.
        assert await known() == {"gone", "stays"}
        clock.advance(8 * DAY_SECONDS)
        assert await known() == {"stays"}
