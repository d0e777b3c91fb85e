"""Reading dead letters from a real broker."""

from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import observer, read_dead_letters, record_at
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, mark
from fleetlore.wire.topics import topic
from streams.embedded.broker import free_port
from tests.build import letter

MakeTopics = Callable[..., Awaitable[None]]


async def test_all_letters_and_marks_are_read_in_order_and_nothing_else(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics
) -> None:
    await make_topics(broker.address, tenant, "dead-letters", partitions=2)
    name = topic(tenant, "dead-letters")
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(30):
            posted = letter(to=name, topic=topic(tenant, "events"), partition=number % 2, offset=number)
            await producer.send_and_wait(name, posted.value, partition=number % 2, headers=posted.headers)
        await producer.send_and_wait(name, b"somebody else's", partition=0)
        read = [each async for each in read_dead_letters(broker.address, tenant, 10)]
        assert isinstance(read[0], DeadLetterRecord)
        posted = mark(read[0], name)
        await producer.send_and_wait(name, posted.value, partition=posted.partition, headers=posted.headers)
    letters = [each for each in read if isinstance(each, DeadLetterRecord)]
    assert len(letters) == len(read) == 30
    for partition in (0, 1):
        assert [each.offset for each in letters if each.partition == partition] == list(range(partition, 30, 2))
        assert [each.place for each in letters if each.partition == partition] == [
            f"{partition}:{n}" for n in range(15)
        ]
    again = [each async for each in read_dead_letters(broker.address, tenant, 10)]
    assert [each for each in again if isinstance(each, Mark)] == [Mark(letters[0].place)]
    assert len(again) == 31


async def test_a_tenant_without_the_topic_has_no_letters(broker: EmbeddedBroker, tenant: str) -> None:
    assert [each async for each in read_dead_letters(broker.address, tenant, 10)] == []
    async with observer(broker.address) as consumer:
        assert topic(tenant, "dead-letters") not in await consumer.topics(), "asking must not create it"


async def test_a_broker_that_is_away_or_hangs_is_said_to(own_broker: EmbeddedBroker, tenant: str) -> None:
    with pytest.raises(BrokerUnavailable):
        [each async for each in read_dead_letters(f"127.0.0.1:{free_port()}", tenant, 5)]
    own_broker.start()
    own_broker.pause()
    with pytest.raises(BrokerUnavailable, match=r"did not answer in 0\.5 s"):
        [each async for each in read_dead_letters(own_broker.address, tenant, 0.5)]


async def test_a_record_is_found_at_its_offset_or_not_at_all(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    name = topic(tenant, "events")
    async with AIOKafkaProducer(bootstrap_servers=broker.address, linger_ms=20) as producer:
        for number in range(20):
            await producer.send(name, b"%d" % number, partition=0)
    async with observer(broker.address) as consumer:
        for offset in (0, 7, 19, 3):
            assert (await record_at(consumer, name, 0, offset)).value == b"%d" % offset
        assert await record_at(consumer, name, 0, 20) is None
        assert await record_at(consumer, name, 1, 0) is None
        assert await record_at(consumer, topic(tenant, "items"), 0, 0) is None
