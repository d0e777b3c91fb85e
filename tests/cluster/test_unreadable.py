"""A worker on Apache Kafka goes on behind records that no client can read."""

import asyncio
import subprocess
from collections.abc import Callable

import pytest

from fleetlore.config import Settings
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster
from tests.streams.unreadable import goes_on_behind_what_cannot_be_read


@pytest.mark.slow
async def test_a_worker_goes_on_behind_what_cannot_be_read(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: Callable[[Settings], subprocess.Popen[bytes]]
) -> None:
    settings = three.settings(milvus, tenant).with_(partitions=1)
    await ensure_topics(settings)
    worker = await asyncio.to_thread(start_worker, settings)
    await goes_on_behind_what_cannot_be_read(settings, three.address)
    assert worker.poll() is None
