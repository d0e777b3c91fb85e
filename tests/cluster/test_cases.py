"""Nothing is lost or doubled on three brokers (RF 3, min ISR 2) while brokers and workers are killed and frozen."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.wire.events import Event
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.offline.drain import wait_drained
from streams.offline.replay import Knowledge
from tests.chaos.accounting import account, add_rows
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.cluster.faults import (
    BROKERS_BEFORE,
    BURST,
    CASES,
    CHANGED,
    SESSION_TIMEOUT_SECONDS,
    Scene,
    all_ended,
    signal_child,
)
from tests.cluster.kafka_cluster import BEFORE, KafkaCluster
from tests.streams.conftest import end, guarded, wait_ready, worker_environ

SESSIONS = 60
DRAIN_SECONDS = 150.0
LAG_SECONDS = 30.0
LAST_CHARACTERS = 60_000

pytestmark = pytest.mark.slow


def lag(settings: Settings) -> float:
    """What the worker says that it has not processed yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics", timeout=10) as page:
        return sum(map(float, re.findall(r"^fleetlore_consumer_lag_records{.*} (\S+)", page.read().decode(), re.M)))


class Workers:
    """Workers that tell their state where not everything is worked in.

    Args:
        folder: for what each says.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, settings: Settings, clock_hours: int = 0) -> subprocess.Popen[bytes]:
        told = str(self._folder / str(len(self._running)))
        command = (sys.executable, "-m", "tests.streams.told_worker", str(clock_hours), told)
        self._running.append(guarded(*command, environ=worker_environ(settings)))
        wait_ready(f"http://127.0.0.1:{settings.metrics_port}", self._running[-1])
        return self._running[-1]

    def end(self) -> None:
        for each in self._running:
            end(each)

    def last_words(self) -> str:
        for each in self._running:
            if each.poll() is None:
                signal_child(each, signal.SIGUSR1)
        time.sleep(2.0)
        return "\n".join(file.read_text(errors="replace")[-LAST_CHARACTERS:] for file in sorted(self._folder.iterdir()))


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    (tmp_path / "told").mkdir()
    made = Workers(tmp_path / "told")
    yield made
    made.end()


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
    workers: Workers,
    reference: Callable[[str, Sequence[Event]], Awaitable[Knowledge]],
) -> None:
    settings = cluster.settings(milvus, tenant, partitions=2, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    await ensure_topics(settings)
    began, events = time.monotonic(), CHANGED.get(name, all_ended)(fleet_events(tenant, 1, SESSIONS))
    worker = await asyncio.to_thread(workers.start, settings)
    happening = asyncio.create_task(CASES[name](Scene(cluster, settings, worker, workers.start, events)))
    async with in_order(cluster.address, tenant, Random(1)) as send:
        for start in range(0, len(events), BURST):
            await send(events[start : start + BURST])
            await asyncio.sleep(0.1)
    kills = await happening
    try:
        await wait_drained(settings, tenant, DRAIN_SECONDS)
    except StackError as error:
        error.add_note(await asyncio.to_thread(workers.last_words))
        raise
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
    await asyncio.to_thread(worker.wait, 40)
    if page := os.environ.get("CHAOS_PAGE"):
        add_rows(Path(page), "cluster", [found])
    assert (found.lost, found.doubled, found.equal) == (0, 0, True), found
