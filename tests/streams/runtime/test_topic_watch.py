"""A worker ends where its topics are no longer what it began with."""

import asyncio

import pytest
from aiokafka import OffsetAndMetadata, TopicPartition

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError, TopicsChanged
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.wire.topics import topic
from sinks import topics
from sinks.topics import TopicAdmin, describe, ensure_topics, refuse_grown, watch_topics


def test_what_changed_is_said_by_name_with_what_to_do() -> None:
    before = {"a": "4 partitions", "b": "4 partitions, cleanup.policy=delete", "c": "2 partitions"}
    assert "topic b had 4 partitions, cleanup.policy=delete and has 8 partitions" in describe(
        before, before | {"b": "8 partitions", "c": "3 partitions"}
    )
    assert "topic c had 2 partitions and has no partition now" in describe(before, {"a": before["a"], "b": before["b"]})
    assert "topics apply" in describe(before, {})


async def test_a_start_is_refused_where_keys_have_moved_until_that_is_accepted(
    broker: EmbeddedBroker, tenant: str
) -> None:
    if isinstance(broker, EmbeddedBroker):
        pytest.skip("it grows no topic and keeps no metadata of a commit: give --kafka")
    settings = Settings(broker=broker.address, group=tenant, tenants=(tenant,), partitions=2)
    await ensure_topics(settings)
    read = [TopicPartition(topic(tenant, "observations"), number) for number in range(2)]
    async with connected(make_consumer(broker.address, group=tenant)) as worker:
        worker.assign(read)
        assert await worker.committed(read[0]) is None
        await refuse_grown(settings)
        await worker.commit({read[0]: OffsetAndMetadata(0, "2"), read[1]: OffsetAndMetadata(0, "")})
        await refuse_grown(settings)
        await worker.commit({read[0]: OffsetAndMetadata(0, "1")})
    with pytest.raises(TopicsChanged, match=r"observations had 1 partitions .* has 2 now.*--grow-keyed"):
        await refuse_grown(settings)
    async with TopicAdmin(settings).connected() as admin:
        await admin.accept(await admin.grown())
        assert await admin.grown() == {}
    await refuse_grown(settings)


@pytest.mark.long
async def test_topics_are_not_grown_beside_a_worker(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, group=tenant, tenants=(tenant,), partitions=1)
    await ensure_topics(settings)
    name = topic(tenant, "observations")
    async with connected(make_consumer(broker.address, name, group=tenant)) as worker:
        while not worker.assignment():
            await asyncio.sleep(0.05)
        await worker.commit({TopicPartition(name, 0): OffsetAndMetadata(0, "1")})
        async with TopicAdmin(settings).connected() as admin:
            with pytest.raises(ConfigError, match="is at work"):
                await admin.accept({name: (1, 2)})


@pytest.mark.tansu
async def test_topics_that_a_broker_makes_anew_are_noticed_and_its_absence_is_not(
    own_broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded broker forgets all; clients that ask for a topic have it made again, with four partitions."""
    own_broker.start()
    settings = Settings(broker=own_broker.address, tenants=(tenant,), partitions=2)
    await ensure_topics(settings)
    answered: list[bool] = []
    read = topics._shapes

    async def noted(settings: Settings) -> dict[str, str]:
        try:
            found = await read(settings)
        except BrokerUnavailable:
            answered.append(False)
            raise
        answered.append(True)
        return found

    monkeypatch.setattr(topics, "_shapes", noted)
    watching = asyncio.create_task(watch_topics(settings, 0.05))
    for answer in (True, False):
        while answer not in answered:
            await asyncio.sleep(0.01)
        own_broker.kill()
    assert not watching.done()
    own_broker.start()
    await ensure_topics(settings.with_(partitions=4))
    with pytest.raises(TopicsChanged, match=tenant):
        await asyncio.wait_for(watching, 120)
