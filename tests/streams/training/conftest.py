"""The topics of a trainer on a real broker, and sessions on them."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from fleetlore.wire.trajectory import Judgment, Trajectory

PARTITIONS = 2
TOPICS = (*ADAPTER_TOPICS, "adapters.acks", "trajectories", "judgments")
AGENT_TOPICS = ("patterns", "items", "events", "decisions")


@pytest.fixture
async def settings(broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path) -> Settings:
    await make_topics(broker.address, tenant, *TOPICS, *AGENT_TOPICS, partitions=PARTITIONS)
    key = create_signing_key(tmp_path / "key")
    return Settings(
        broker=broker.address,
        tenants=(tenant,),
        group=tenant,
        partitions=PARTITIONS,
        signing_key=str(tmp_path / "key"),
        public_key=key.public_base64,
        trainer_cpu_share=8.0,  # what the test itself spends counts as the trainer's
    )


def record(name: str, some: list[Trajectory] | list[Judgment], offset: int) -> ConsumerRecord:
    value = b"[" + b",".join(each.to_json() for each in some) + b"]"
    return ConsumerRecord(name, 0, offset, 0, 0, None, value, None, 0, len(value), ())


async def send(settings: Settings, some: list[Trajectory]) -> None:
    """Ten sessions a record, and something else that the topic holds."""
    name = topic(settings.tenants[0], "trajectories")
    async with AIOKafkaProducer(bootstrap_servers=settings.broker) as producer:
        for number in range(0, len(some), 10):
            value = b"[" + b",".join(each.to_json() for each in some[number : number + 10]) + b',{"type":"opinion"}]'
            await producer.send_and_wait(name, value, partition=number // 10 % PARTITIONS)
