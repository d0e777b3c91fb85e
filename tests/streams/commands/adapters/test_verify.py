from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.pretrain import world_judgments
from fleetlore.errors import ConfigError
from fleetlore.wire.adapter_manifest import Place
from fleetlore.wire.topics import topic
from streams.embedded.broker import EmbeddedBroker
from streams.training.remake import _sessions


def made_from(*places: Place) -> Any:
    return SimpleNamespace(batches=[SimpleNamespace(places=places)])


async def test_the_last_records_of_the_log_are_found_though_they_came_in_one_write(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    """Of such a write the embedded broker names the first record where it is asked for the end."""
    await make_topics(broker.address, tenant, "judgments", partitions=1)
    judgments = list(world_judgments(0, 3, seed=0, tenant=tenant))
    producer = AIOKafkaProducer(bootstrap_servers=broker.address)
    await producer.start()
    batch = producer.create_batch()
    for judgment in judgments:
        batch.append(timestamp=None, key=None, value=b"[%b]" % judgment.to_json(), headers=[])
    batch.close()
    await (await producer.send_batch(batch, topic(tenant, "judgments"), partition=0))
    await producer.stop()
    wanted = [Place(0, 1, 0), Place(0, 2, 0)]
    found = await _sessions(broker.address, tenant, made_from(*wanted), 20.0)
    assert [found[place].trajectory.id for place in wanted] == [each.trajectory.id for each in judgments[1:]]
    with pytest.raises(ConfigError, match="no longer holds"):
        await _sessions(broker.address, tenant, made_from(Place(0, 3, 0)), 20.0)
