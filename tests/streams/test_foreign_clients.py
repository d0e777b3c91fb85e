"""Clients that are not ours: any Kafka client that keys its records by session is understood, one event a record."""

import orjson
import pytest
from confluent_kafka import Producer

from benchmarks.cloudevents import to_cloudevent
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from tests.streams.broker_pipeline import BrokerPipeline

RIGHT = ("bash", {"command": "git commit -m x"}, "1 file changed", None)
WRONG = ("bash", {"command": "git comit -m x"}, "", "git: 'comit' is not a git command")


def send_with_librdkafka(pipeline: BrokerPipeline, events: list[Event], *, is_binary: bool = False) -> None:
    # Java's partitioner, as fleetlore's emitter and most clients have it; librdkafka's own default is another one.
    broker = {"bootstrap.servers": pipeline.settings.broker, "partitioner": "murmur2_random", "log_level": 0}
    producer, name = Producer(broker), topic(pipeline.tenant, "events")
    for event in events:
        value, headers = to_cloudevent(event), {}
        if is_binary:
            data = value.pop("data")
            headers = {f"ce_{name}": str(field) for name, field in value.items()} | {"content-type": "application/json"}
            value = data
        producer.produce(name, orjson.dumps(value), key=event.session, headers=headers)
    assert producer.flush(120) == 0


@pytest.mark.parametrize("is_binary", [False, True])
async def test_confluent_kafka_is_understood(broker_pipeline: BrokerPipeline, is_binary: bool) -> None:
    """In structured mode, and with the attributes of a CloudEvent in headers and its data as the value."""
    pipeline = broker_pipeline
    sessions = [pipeline.story.session("good", WRONG, RIGHT), pipeline.story.session("bad", WRONG, outcome="failure")]
    send_with_librdkafka(pipeline, pipeline.story.interleaved(sessions, seed=5), is_binary=is_binary)
    await pipeline.drain()
    assert (await pipeline.knowledge()).judgments == [("bad", "failure", 3), ("good", "success", 4)]
    assert "recovery" in {row["kind"] for row in await pipeline.bodies("items")}
    assert await pipeline.dead_letters() == []
