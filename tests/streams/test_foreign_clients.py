"""Clients that are not ours: any Kafka client that keys its records by session is understood, one event a record."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from benchmarks.cloudevents import to_cloudevent
from fleetlore.config import Settings
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.topics import TOPICS, topic
from streams.offline.operator_word import wait_drained
from tests.streams.broker_pipeline import BrokerPipeline, StartWorker, known
from tests.streams.conftest import end, own_settings

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


async def test_confluent_kafka_in_structured_mode(broker_pipeline: BrokerPipeline) -> None:
    pipeline = broker_pipeline
    sessions = [pipeline.story.session("good", WRONG, RIGHT), pipeline.story.session("bad", WRONG, outcome="failure")]
    events = pipeline.story.interleaved(sessions, seed=5)
    send_with_librdkafka(pipeline, events)
    await pipeline.drain()
    assert (await pipeline.knowledge()).judgments == [("bad", "failure", 3), ("good", "success", 4)]
    assert "recovery" in {row["kind"] for row in await pipeline.bodies("items")}
    assert await pipeline.dead_letters() == []


async def test_confluent_kafka_in_binary_mode(broker_pipeline: BrokerPipeline) -> None:
    """The attributes of a CloudEvent in headers, its data as the value."""
    pipeline = broker_pipeline
    send_with_librdkafka(pipeline, pipeline.story.session("good", WRONG, RIGHT), is_binary=True)
    await pipeline.drain()
    assert (await pipeline.knowledge()).judgments == [("good", "success", 4)]
    assert await pipeline.dead_letters() == []


@pytest.fixture
def mock_server(mock_cluster: str, milvus: str, tenant: str, start_worker: StartWorker) -> Iterator[Settings]:
    """A worker on librdkafka's mock cluster. It has no request to create a topic: asking for one makes it."""
    admin = Producer({"bootstrap.servers": mock_cluster, "log_level": 0})
    for spec in TOPICS:
        assert len(admin.list_topics(topic(tenant, spec.name), timeout=120).topics) == 1
    settings = own_settings(mock_cluster, milvus, tenant).with_(partitions=4)
    worker = start_worker(settings)
    yield settings
    end(worker)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt install kcat)")
async def test_kcat_on_the_mock_cluster(mock_server: Settings, tenant: str) -> None:
    def event(kind: ev.Kind, sequence: int, **data: Any) -> bytes:
        named = {name.replace("__", "."): value for name, value in data.items()}
        return orjson.dumps(to_cloudevent(Event(kind, tenant, "shell", "from-kcat", sequence, 1_760_000_000.0, named)))

    lines = [
        event("session.started", 0, fleetlore__goal="list a folder"),
        event(
            "outcome", 1, **{ev.TOOL: "ls", ev.ARGUMENTS: "/nowhere", ev.ERROR_MESSAGE: "no such folder: '/nowhere'"}
        ),
        event("outcome", 2, **{ev.TOOL: "ls", ev.ARGUMENTS: "/", ev.RESULT: "bin etc"}),
        event("session.ended", 3, **{ev.OUTCOME: "success"}),
    ]
    command = ["kcat", "-P", "-b", mock_server.broker, "-t", topic(tenant, "events"), "-k", "from-kcat", "-X"]
    subprocess.run(
        [*command, "topic.partitioner=murmur2_random"], input=b"\n".join(lines) + b"\n", check=True, timeout=30
    )
    await wait_drained(mock_server, tenant, 40)
    knowledge = await known(mock_server.milvus, tenant)
    assert knowledge.judgments == [("from-kcat", "success", 4)]
    assert knowledge.patterns["class"] == 1
