"""The producer on a real broker: what it has sent is there, packed, on the right partition; else it raises."""

import asyncio
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.producer.message_accumulator import BatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.errors import BrokerUnavailable, RecordsRefused
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from fleetlore.wire.dead_letter import RawRecord
from fleetlore.wire.topics import partition_for, topic
from sinks.producer import MAX_RECORD_BYTES, BatchProducer, Outgoing, json_arrays
from streams.embedded.broker import free_port
from tests.doubles.mock_cluster import Failure, MockCluster, Request
from tests.rows import for_each

PARTITIONS = 3


@pytest.fixture
async def producer(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> Any:
    await make_topics(broker.address, tenant, "observations", "items", "dead-letters", partitions=PARTITIONS)
    made = BatchProducer(broker.address)
    await made.start()
    yield made
    await made.stop()


async def read(bootstrap: str, name: str) -> list[Any]:
    """All records, partition by partition."""
    records: list[Any] = []
    async with observer(bootstrap) as consumer:
        partitions = await partitions_of(consumer, name)
        count = sum((await end_offsets(consumer, partitions)).values())
        await consumer.seek_to_beginning(*partitions)
        while len(records) < count:
            for found in (await consumer.getmany(timeout_ms=200)).values():
                records += found
    return sorted(records, key=lambda record: (record.partition, record.offset))


async def test_values_of_one_partition_share_a_record_in_their_order(
    producer: BatchProducer, broker: EmbeddedBroker, tenant: str
) -> None:
    await producer.deliver([])
    await producer.deliver([Outgoing(tenant, "observations", "k", None)])  # a tombstone says nothing here
    keys = [f"k{number % 7}" for number in range(60)]
    await producer.deliver([Outgoing(tenant, "observations", key, b"[%d]" % n) for n, key in enumerate(keys)])
    records = await read(broker.address, topic(tenant, "observations"))
    assert len(records) == len({partition_for(key, PARTITIONS) for key in keys})
    for record in records:
        expected = [[n] for n, key in enumerate(keys) if partition_for(key, PARTITIONS) == record.partition]
        assert orjson.loads(record.value) == expected
        assert record.key is None


async def test_arrays_are_compressed_and_what_agents_read_is_not(
    producer: BatchProducer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, int] = {}
    send = AIOKafkaProducer.send_batch

    async def spy(client: AIOKafkaProducer, batch: BatchBuilder, name: str, *, partition: int) -> Any:
        acknowledged = await send(client, batch, name, partition=partition)
        await asyncio.shield(acknowledged)
        sent[name] = batch.size()
        return acknowledged

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", spy)
    said = orjson.dumps("the same again and " * 500)
    await producer.deliver([Outgoing(tenant, name, "k", said) for name in ("observations", "items")])
    assert sent[topic(tenant, "observations")] < len(said) / 10
    assert sent[topic(tenant, "items")] > len(said)


async def test_on_a_compacted_topic_each_value_is_a_record_and_none_is_a_tombstone(
    producer: BatchProducer, broker: EmbeddedBroker, tenant: str
) -> None:
    await producer.deliver(
        [
            Outgoing(tenant, "items", "a", b"1"),
            Outgoing(tenant, "items", "b", b"2"),
            Outgoing(tenant, "items", "a", None),
        ]
    )
    records = await read(broker.address, topic(tenant, "items"))
    assert [(r.key, r.value) for r in records if r.key == b"a"] == [(b"a", b"1"), (b"a", None)]
    assert [(r.key, r.value) for r in records if r.key == b"b"] == [(b"b", b"2")]
    assert all(record.partition == partition_for(record.key.decode(), PARTITIONS) for record in records)


async def test_a_dead_letter_keeps_its_bytes_key_and_headers(
    producer: BatchProducer, broker: EmbeddedBroker, tenant: str
) -> None:
    name = topic(tenant, "dead-letters")
    letters = [
        RawRecord(name, 1, b"key", b"\xff\x00", [("dlq.reason", b"not_json")]),
        RawRecord(name, PARTITIONS + 1, None, b"", [("dlq.reason", b"empty")]),
    ]
    await producer.send(letters)
    records = await read(broker.address, name)
    assert [(each.partition, each.key, each.value) for each in records] == [(1, b"key", b"\xff\x00"), (1, None, b"")]
    assert [each.headers for each in records] == [(("dlq.reason", b"not_json"),), (("dlq.reason", b"empty"),)]


async def test_a_broker_that_is_away_at_the_start_is_said_to_be() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnavailable, match=f"no Kafka broker at {address}$"):
        await BatchProducer(address).start()
    with pytest.raises(BrokerUnavailable, match="started"):
        await BatchProducer(address).deliver([Outgoing("acme", "items", "a", b"1")])


async def test_a_topic_that_is_not_there_is_named(
    broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's name with a mistake in it is the usual reason."""

    async def absent(self: BatchProducer, name: str) -> int:
        raise UnknownTopicOrPartitionError  # the broker of the tests creates it

    monkeypatch.setattr(AIOKafkaProducer, "partitions_for", absent)
    async with BatchProducer(broker.address) as producer:
        with pytest.raises(BrokerUnavailable, match=f"has no topic fleetlore.{tenant}.decisions"):
            await producer.deliver([Outgoing(tenant, "decisions", "a", b"1")])


@pytest.mark.long
async def test_a_broker_that_dies_is_an_error_and_not_a_loss(
    own_broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    own_broker.start()
    await make_topics(own_broker.address, tenant, "items", "dead-letters", partitions=1)
    producer = BatchProducer(own_broker.address, delivery_seconds=4.0)
    await producer.start()
    await producer.deliver([Outgoing(tenant, "items", "a", b"1")])
    own_broker.kill()
    with pytest.raises(BrokerUnavailable):
        await producer.deliver([Outgoing(tenant, "items", "a", b"2")])
    with pytest.raises(BrokerUnavailable):
        await producer.send([RawRecord(topic(tenant, "dead-letters"), 0, None, b"x", [])])
    await producer.stop()


@given(st.lists(st.binary(min_size=1, max_size=50).map(lambda raw: orjson.dumps(raw.hex())), max_size=30))
def test_arrays_hold_all_values_in_order(parts: list[bytes]) -> None:
    assert [value for array in json_arrays(parts) for value in orjson.loads(array)] == [orjson.loads(p) for p in parts]


def test_arrays_are_bounded_and_a_value_that_is_larger_has_one_of_its_own() -> None:
    large, small = orjson.dumps("x" * (MAX_RECORD_BYTES + 1)), orjson.dumps("y")
    assert [len(orjson.loads(array)) for array in json_arrays([small, large, small, small])] == [1, 1, 2]


@for_each("failure", Failure.MESSAGE_TOO_LARGE, Failure.INVALID_TIMESTAMP, Failure.POLICY_VIOLATION)
async def test_a_record_that_the_broker_never_takes_stops_no_other(failure: Failure) -> None:
    with MockCluster() as cluster:
        name = topic("acme", "items")
        cluster.create_topic(name, 1)
        async with BatchProducer(cluster.address) as producer:
            # The three travel together; sent one by one, the first is refused again.
            cluster.fail_next(Request.PRODUCE, [failure] * 2)
            with pytest.raises(RecordsRefused) as refused:
                await producer.deliver([Outgoing("acme", "items", key, key.encode()) for key in "abc"])
        assert refused.value.values == ((name, b"a"),)
        assert [record.value for record in await read(cluster.address, name)] == [b"b", b"c"]


@for_each("failure", Failure.OUT_OF_ORDER_SEQUENCE, Failure.UNKNOWN_PRODUCER_ID)
async def test_a_producer_whose_sequence_the_broker_lost_is_replaced(failure: Failure) -> None:
    with MockCluster() as cluster:
        name = topic("acme", "items")
        cluster.create_topic(name, 1)
        async with BatchProducer(cluster.address) as producer:
            await producer.deliver([Outgoing("acme", "items", "a", b"a")])
            lost = producer._producer
            cluster.fail_next(Request.PRODUCE, [failure])
            with pytest.raises(BrokerUnavailable, match="did not take"):
                await producer.deliver([Outgoing("acme", "items", "b", b"b")])
            await producer.deliver([Outgoing("acme", "items", "b", b"b")])
            assert producer._producer is not lost
        assert [record.value for record in await read(cluster.address, name)] == [b"a", b"b"]
