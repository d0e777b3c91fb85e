"""A worker on the embedded broker goes on behind records that no client can read."""

import subprocess
from collections.abc import Callable

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from tests.streams.unreadable import goes_on_behind_what_cannot_be_read


@pytest.mark.slow
async def test_a_worker_goes_on_behind_what_cannot_be_read(
    broker: EmbeddedBroker, milvus: str, tenant: str, start_worker: Callable[[Settings], subprocess.Popen[bytes]]
) -> None:
    settings = Settings(
        broker=broker.address,
        milvus=milvus,
        tenants=(tenant,),
        group=tenant,
        partitions=1,
        session_timeout_seconds=6.0,
        metrics_port=free_port(),
    )
    await ensure_topics(settings)
    worker = start_worker(settings)
    await goes_on_behind_what_cannot_be_read(settings, broker.address)
    assert worker.poll() is None
