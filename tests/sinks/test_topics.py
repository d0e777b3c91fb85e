"""Creating topics on a real broker."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.offsets import observer, partitions_of
from fleetlore.testing.broker import EmbeddedBroker, free_port
from fleetlore.topics import NAMES, TOPICS, topic
from sinks.topics import ensure_topics, new_topic


async def test_all_topics_of_all_tenants_are_created_with_their_partitions(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, tenants=(tenant, f"{tenant}-2"), partitions=3)
    created = await ensure_topics(settings)
    assert sorted(created) == sorted(topic(each, name) for each in settings.tenants for name in NAMES)
    async with observer(broker.address) as consumer:
        for name in created:
            assert len(await partitions_of(consumer, name)) == 3


async def test_a_second_time_there_is_nothing_to_create(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, tenants=(tenant,), partitions=2)
    await ensure_topics(settings)
    assert await ensure_topics(settings) == []
    assert await ensure_topics(settings.with_(partitions=8)) == []


async def test_two_workers_that_start_together_do_not_mind_each_other(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, tenants=(tenant,), partitions=1)
    await asyncio.gather(*(ensure_topics(settings) for _ in range(3)))
    assert await ensure_topics(settings) == []


async def test_a_topic_that_exists_is_left_as_it_is(broker: EmbeddedBroker, tenant: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic(topic(tenant, "events"), 7, 1)])
    await admin.close()
    created = await ensure_topics(Settings(broker=broker.address, tenants=(tenant,), partitions=2))
    assert topic(tenant, "events") not in created
    async with observer(broker.address) as consumer:
        assert len(await partitions_of(consumer, topic(tenant, "events"))) == 7


async def test_a_broker_that_is_away_is_said_to_be() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnavailable, match=address):
        await ensure_topics(Settings(broker=address))


async def test_a_cluster_that_cannot_create_topics_is_said_to(mock_cluster: str, tenant: str) -> None:
    """librdkafka's mock cluster has no controller; what exists there is used."""
    with pytest.raises(BrokerUnavailable, match="controller"):
        await ensure_topics(Settings(broker=mock_cluster, tenants=(tenant,)))


def test_compacted_topics_are_kept_for_ever_and_the_others_for_days() -> None:
    for spec in TOPICS:
        asked = new_topic("acme", spec, Settings(partitions=5, replication=3))
        assert (asked.name, asked.num_partitions, asked.replication_factor) == (topic("acme", spec.name), 5, 3)
        if spec.compacted:
            assert asked.topic_configs == {"cleanup.policy": "compact"}
        else:
            assert asked.topic_configs["cleanup.policy"] == "delete"
            assert int(asked.topic_configs["retention.ms"]) >= 7 * 86_400_000
