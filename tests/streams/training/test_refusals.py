"""A refused adapter reaches the metric that an alert looks at."""

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.kafka.read import Follower
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from streams.training.trainer import REASONS, count_refusals, refusal_of
from tests.rows import for_each

ROOT = Path(__file__).parents[3]


@for_each(
    "ack, reason",
    (b'{"agent": "a", "result": "applied"}', None),
    (b'{"result": "revoked"}', None),
    (b'{"result": "tampered"}', "tampered"),
    (b'{"result": "no word of ours"}', "other"),
    *((odd, None) for odd in (b'{"result": 1}', b"{}", b"[]", b"{", b"", None)),
)
def test_what_an_ack_says(ack: bytes | None, reason: str | None) -> None:
    assert refusal_of(ack) == reason


def test_every_reason_in_the_code_is_known() -> None:
    files = [*ROOT.glob("fleetlore/**/*.py"), *ROOT.glob("sinks/*.py")]
    found = {each for file in files for each in re.findall(r'AdapterRefused\(\s*"(\w+)"', file.read_text())}
    assert found <= REASONS and "tampered" in found


async def test_refusals_are_counted_from_where_the_topic_ended_and_over_an_outage(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(broker.address, tenant, "adapters.acks", partitions=2)
    following, follow = asyncio.Event(), Follower._follow
    outages = 1

    async def once_away(self: Follower, consumer: Any) -> None:
        nonlocal outages
        following.set()
        if outages:
            outages -= 1
            raise OSError("away")
        await follow(self, consumer)

    monkeypatch.setattr(Follower, "_follow", once_away)
    metrics = Metrics("trainer")

    def counted(reason: str) -> float:
        return metrics.registry.get_sample_value("fleetlore_adapters_refused_total", {"reason": reason}) or 0.0

    name = topic(tenant, "adapters.acks")
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:

        async def ack(result: str, partition: int) -> None:
            await producer.send_and_wait(name, orjson.dumps({"result": result}), partition=partition)

        await ack("probe", 0)  # before the trainer
        task = asyncio.create_task(count_refusals(Settings(broker=broker.address), [tenant], metrics))
        try:
            async with asyncio.timeout(120):
                await following.wait()
                for partition, result in enumerate(("tampered", "applied", "tampered")):
                    await ack(result, partition % 2)
                while counted("tampered") < 2:
                    await asyncio.sleep(0.05)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert counted("probe") == 0
