"""Reading topics to their end, on the embedded broker."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka import read
from fleetlore.kafka.read import observer, partitions_of, read_to_end, records_of
from fleetlore.wire.topics import topic


async def test_all_records_are_read_in_order_within_a_partition(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events", "patterns", partitions=2)
    names = [topic(tenant, name) for name in ("events", "patterns")]
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        # Several records in one batch: tansu names an end that is too small there.
        for number in range(40):
            await producer.send(names[number % 2], b"%d" % number, partition=number // 2 % 2)
    records = await read_to_end(broker.address, names, 120)
    assert sorted(int(record.value) for record in records) == list(range(40))
    for place in {(record.topic, record.partition) for record in records}:
        offsets = [record.offset for record in records if (record.topic, record.partition) == place]
        assert offsets == sorted(offsets)


async def test_a_topic_that_does_not_exist_holds_nothing_and_is_not_created(
    broker: EmbeddedBroker, tenant: str
) -> None:
    name = topic(tenant, "events")
    assert await read_to_end(broker.address, [name], 120) == []
    async with observer(broker.address) as consumer:
        assert await partitions_of(consumer, name) == []


async def test_a_broker_that_is_away_is_said(unused_address: str) -> None:
    with pytest.raises(BrokerUnavailable, match=f"no Kafka broker at {unused_address}"):
        await read_to_end(unused_address, ["any"], 5.0)


async def test_a_broker_that_goes_away_while_a_topic_is_read_is_said(
    own_broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export, an erasure and a distrust hung for as long as it was away."""
    own_broker.start()
    await make_topics(own_broker.address, tenant, "events", partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=own_broker.address) as producer:
        for _ in range(40):
            await producer.send_and_wait(topic(tenant, "events"), b"x" * 200_000)
    came, now = 0, 0.0

    def monotonic() -> float:
        nonlocal now
        now += 40.0 if came else 0.0
        return now

    monkeypatch.setattr(read, "time", SimpleNamespace(monotonic=monotonic))
    async with asyncio.timeout(240):
        with pytest.raises(BrokerUnavailable, match="gave no more records"):
            async for _ in records_of(own_broker.address, topic(tenant, "events")):
                came += 1
                if came == 1:
                    own_broker.kill()
    assert 0 < came < 40


async def test_a_broker_that_hangs_does_not_use_up_the_whole_budget_of_a_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read._REQUEST_MS < 10_000, "the shortest budget of a caller is 20 s, and it asks twice"
    monkeypatch.setattr(read, "_REQUEST_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"127.0.0.1:{hanging.getsockname()[1]}"
        async with asyncio.timeout(120):
            with pytest.raises(BrokerUnavailable):
                async with observer(address):
                    pass
