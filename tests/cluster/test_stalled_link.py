"""The link of a worker stands still for longer than its session, and its requests arrive afterwards."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import emit_in_bursts
from tests.chaos.fleet import fleet_events
from tests.cluster.faults import assert_nothing_lost
from tests.cluster.kafka_cluster import CLIENT, KafkaCluster
from tests.doubles.proxy import Proxy
from tests.streams.broker_pipeline import Reference

SESSIONS, BURST = 100, 8
# 20 is a stall of 54 s.
SESSION_TIMEOUT_SECONDS = float(os.environ.get("LINK_TIMEOUT_SECONDS", "6"))
STALL_SECONDS = 2.7 * SESSION_TIMEOUT_SECONDS
DRAIN_SECONDS = 400.0
LINK = "LINK"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def behind_a_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, int]]:
    """One broker, with a listener for clients that reach it by a proxy at a port."""
    port = free_port()
    with KafkaCluster(
        tmp_path_factory.mktemp("link"), listeners={CLIENT: "PLAINTEXT", LINK: "PLAINTEXT"}, advertised={LINK: port}
    ) as made:
        yield made, port


@pytest.mark.parametrize("milvus_too", [False, True], ids=["Kafka", "Kafka and Milvus"])
async def test_agents_read_what_the_store_knows(
    milvus_too: bool,
    behind_a_link: tuple[KafkaCluster, int],
    milvus: str,
    tenant: str,
    start_ahead: Callable[..., subprocess.Popen[bytes]],
    reference: Reference,
) -> None:
    cluster, port = behind_a_link
    settings = cluster.settings(
        milvus, tenant, partitions=2, replication=1, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
    )
    await ensure_topics(settings)
    began, events = time.monotonic(), fleet_events(tenant, 1, SESSIONS)
    broker = f"127.0.0.1:{cluster.brokers[0].ports[LINK]}"
    async with Proxy(broker, port) as link, Proxy(milvus.removeprefix("http://")) as store_link:
        far = settings.with_(broker=link.address, milvus=f"http://{store_link.address}", metrics_port=free_port())
        await asyncio.to_thread(start_ahead, far)
        await asyncio.to_thread(start_ahead, settings)
        stalled = [link, store_link] if milvus_too else [link]
        before = int(0.6 * len(events)) // BURST * BURST
        await emit_in_bursts(cluster.address, tenant, events[:before], BURST, 0.1)
        for each in stalled:
            each.stall()
        rest = asyncio.create_task(asyncio.sleep(STALL_SECONDS))
        await emit_in_bursts(cluster.address, tenant, events[before:], BURST, 0.1)
        await rest
        for each in stalled:
            each.flow()
        await asyncio.sleep(SESSION_TIMEOUT_SECONDS)
        await wait_drained(settings, tenant, DRAIN_SECONDS)
        name = f"a worker's link to Kafka{' and Milvus' if milvus_too else ''} stands still"
        await assert_nothing_lost(name, settings, events, reference, began)
