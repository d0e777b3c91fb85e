"""A worker starts where the first of its bootstrap servers takes connections and never answers."""

import socket

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from streams.embedded.broker import free_port
from tests.streams.broker_pipeline import StartWorker


def test_a_worker_starts_beside_a_server_that_hangs(
    broker: EmbeddedBroker, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hanging:
        worker = start_worker(
            Settings(
                broker=f"127.0.0.1:{hanging.getsockname()[1]},{broker.address}",
                milvus=milvus,
                group=tenant,
                tenants=(tenant,),
                partitions=1,
                session_timeout_seconds=6.0,
                metrics_port=free_port(),
            )
        )
        assert worker.poll() is None
