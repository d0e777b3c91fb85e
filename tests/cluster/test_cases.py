"""No event is lost or doubled on three brokers (RF 3, min ISR 2) while brokers and workers are killed and frozen."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sinks.topics import ensure_topics
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import emit_in_bursts
from tests.chaos.fleet import fleet_events
from tests.cluster.faults import (
    BROKERS_BEFORE,
    BURST,
    CASES,
    CHANGED,
    SESSION_TIMEOUT_SECONDS,
    Scene,
    all_ended,
    assert_nothing_lost,
)
from tests.cluster.kafka_cluster import BEFORE, KafkaCluster
from tests.served import metric
from tests.streams.broker_pipeline import Reference

SESSIONS = 60
DRAIN_SECONDS = 400.0
LAG_SECONDS = 240.0
LAG = r"fleetlore_consumer_lag_records{.*} (\S+)"

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three brokers for a case."""
    if name not in BROKERS_BEFORE:
        yield request.getfixturevalue("three")
        return
    with KafkaCluster(tmp_path / "before", brokers=3, release=BEFORE) as made:
        yield made


@pytest.mark.parametrize("name", CASES)
async def test_nothing_is_lost_or_doubled(
    name: str,
    cluster: KafkaCluster,
    milvus: str,
    tenant: str,
    start_ahead: Callable[..., subprocess.Popen[bytes]],
    reference: Reference,
) -> None:
    settings = cluster.settings(milvus, tenant, partitions=2, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    await ensure_topics(settings)
    began, events = time.monotonic(), CHANGED.get(name, all_ended)(fleet_events(tenant, 1, SESSIONS))
    worker = await asyncio.to_thread(start_ahead, settings)
    happening = asyncio.create_task(CASES[name](Scene(cluster, settings, worker, start_ahead, events)))
    await emit_in_bursts(cluster.address, tenant, events, BURST, 0.1)
    kills = await happening
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    if worker.poll() is None:
        async with asyncio.timeout(LAG_SECONDS):
            while sum(map(float, await asyncio.to_thread(metric, settings.metrics_port, LAG))):
                await asyncio.sleep(0.5)
    await assert_nothing_lost(name, settings, events, reference, began, kills)
