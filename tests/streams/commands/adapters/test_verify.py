from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.random_adapters import version_of
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.adapter_manifest import DataRange, RetrievalManifest
from fleetlore.wire.topics import topic
from streams.embedded.broker import EmbeddedBroker
from streams.training.remake import _window
from tests.models.adapter.inflected import sessions


async def test_the_last_records_of_the_log_are_found_though_they_came_in_one_write(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    """Of such a write the embedded broker names the first record where it is asked for the end."""
    await make_topics(broker.address, tenant, "trajectories", partitions=1)
    some, name = sessions(0, 3), topic(tenant, "trajectories")
    producer = AIOKafkaProducer(bootstrap_servers=broker.address)
    await producer.start()
    batch = producer.create_batch()
    for session in some:
        batch.append(timestamp=None, key=None, value=b"[%b]" % session.to_json(), headers=[])
    batch.close()
    await (await producer.send_batch(batch, name, partition=0))
    await producer.stop()

    async def window(start: int, stop: int) -> list[str]:
        data = (DataRange(name, 0, start, stop),)
        _, manifest = version_of(RetrievalManifest, 1, tenant, data=data)
        return [each.id for each in await _window(Settings(broker=broker.address), manifest, 20.0)]

    assert await window(1, 3) == [each.id for each in some[1:]]
    with pytest.raises(ConfigError, match="no longer holds"):
        await window(3, 4)
