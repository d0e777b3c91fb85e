"""No event is lost or doubled on three brokers (RF 3, min ISR 2) while brokers and workers are killed and frozen."""

import asyncio
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from benchmarks.replay import Knowledge
from fleetlore.config import Settings
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.wire.events import Event
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.offline.operator_word import wait_drained
from tests.chaos.accounting import account, add_rows
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.cluster.faults import BROKERS_BEFORE, BURST, CASES, CHANGED, SESSION_TIMEOUT_SECONDS, Scene, all_ended
from tests.cluster.kafka_cluster import BEFORE, KafkaCluster

SESSIONS = 60
DRAIN_SECONDS = 400.0
LAG_SECONDS = 240.0

pytestmark = pytest.mark.slow


def lag(settings: Settings) -> float:
    """The lag that the worker reports."""
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics", timeout=120) as page:
        return sum(map(float, re.findall(r"^fleetlore_consumer_lag_records{.*} (\S+)", page.read().decode(), re.M)))


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
    reference: Callable[[str, Sequence[Event]], Awaitable[Knowledge]],
) -> None:
    settings = cluster.settings(milvus, tenant, partitions=2, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    await ensure_topics(settings)
    began, events = time.monotonic(), CHANGED.get(name, all_ended)(fleet_events(tenant, 1, SESSIONS))
    worker = await asyncio.to_thread(start_ahead, settings)
    happening = asyncio.create_task(CASES[name](Scene(cluster, settings, worker, start_ahead, events)))
    async with in_order(cluster.address, tenant, Random(1)) as send:
        for first in range(0, len(events), BURST):
            await send(events[first : first + BURST])
            await asyncio.sleep(0.1)
    kills = await happening
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    if worker.poll() is None:
        async with asyncio.timeout(LAG_SECONDS):
            while await asyncio.to_thread(lag, settings):
                await asyncio.sleep(0.5)
    store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
    expected = (await reference(tenant, events)).state_hash
    seconds = time.monotonic() - began
    found = await account(name, tenant, settings, store, events, len(events), kills, expected, seconds)
    await store.close()
    worker.terminate()
    await asyncio.to_thread(worker.wait, 120)
    if page := os.environ.get("CHAOS_PAGE"):
        add_rows(Path(page), "cluster", [found])
    assert (found.lost, found.doubled, found.equal) == (0, 0, True), found
