"""What clients make of the answers of brokers that have lost what they led."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster


async def test_what_is_committed_is_not_forgotten_by_a_broker_that_coordinates_the_group_no_more(
    three: KafkaCluster, tenant: str
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), partitions=1, replication=3))
    partition = TopicPartition(topic(tenant, "events"), 0)
    async with connected(make_consumer(three.address, group=tenant)) as consumer:
        consumer.assign([partition])
        async with asyncio.timeout(60):
            await consumer.commit({partition: 7})
        coordinator = consumer._coordinator
        [another, _] = {1, 2, 3} - {coordinator.coordinator_id}
        coordinator.coordinator_id = another
        assert await consumer.committed(partition) == 7
