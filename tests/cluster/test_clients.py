"""Clients handle the answers of brokers that no longer lead their partitions."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_admin, make_consumer
from fleetlore.kafka.read import committed_offsets
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster


async def test_what_is_committed_is_not_forgotten_by_a_broker_that_coordinates_the_group_no_more(
    three: KafkaCluster, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), partitions=1, replication=3))
    partition = TopicPartition(topic(tenant, "events"), 0)
    async with connected(make_consumer(three.address, group=tenant)) as consumer:
        consumer.assign([partition])
        async with asyncio.timeout(120):
            await consumer.commit({partition: 7})
    async with connected(make_admin(three.address)) as admin:
        coordinator = await admin.find_coordinator(tenant)
        assert (await committed_offsets(admin, tenant, [partition]))[partition].offset == 7
        for another in {1, 2, 3} - {coordinator}:
            monkeypatch.setattr(admin, "find_coordinator", AsyncMock(return_value=another))
            with pytest.raises(KafkaError, match="not said"):
                await committed_offsets(admin, tenant, [partition])
