"""The fixture itself: three brokers hold what was written through a kill, and leave nothing behind."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.topics import TOPICS, topic
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster


async def test_what_is_acknowledged_survives_each_broker_in_turn(three: KafkaCluster, tenant: str) -> None:
    settings = Settings(broker=three.address, tenants=(tenant,), replication=3)
    assert len(await ensure_topics(settings)) == len(TOPICS)
    name = topic(tenant, "events")
    for number, broker in enumerate(three.brokers):
        broker.kill()
        async with connected(make_producer(three.address)) as producer:
            await producer.send_and_wait(name, b"%d" % number)
        broker.launch()
        broker.await_brokers(3)
    records = await read_to_end(three.address, [name], 120)
    assert sorted(record.value for record in records) == [b"0", b"1", b"2"]


async def test_a_frozen_broker_answers_again(three: KafkaCluster) -> None:
    first = three.brokers[0]
    first.pause()
    with pytest.raises(AssertionError, match="does not serve"):
        first.await_brokers(3, seconds=2.0)
    first.resume()
    first.await_brokers(3)


def test_brokers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    start = (
        "import sys, time; from pathlib import Path; from tests.cluster.kafka_cluster import KafkaCluster\n"
        "cluster = KafkaCluster(Path(sys.argv[1])); cluster.start(); print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", start, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout as said:
        assert said.readline() == b"up\n"
        owner.kill()
        owner.wait()
    deadline = time.monotonic() + 120
    while any(str(tmp_path).encode() in command for command in _commands()):
        assert time.monotonic() < deadline, "a broker is left"
        time.sleep(0.2)


def _commands() -> list[bytes]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:  # ended meanwhile
            continue
    return found
