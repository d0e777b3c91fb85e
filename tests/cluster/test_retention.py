"""Records that retention deletes while workers are down are counted and reported, and the rest is processed."""

import asyncio
import re
import subprocess
import urllib.request
from collections.abc import Callable
from random import Random

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_admin
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.streams.broker_pipeline import known

DRAIN_SECONDS = 400.0
SESSIONS = 20
BURST = 16


@pytest.mark.slow
async def test_records_that_expired_before_a_worker_came_to_them_are_counted(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: Callable[[Settings], subprocess.Popen[bytes]]
) -> None:
    settings = three.settings(milvus, tenant)
    await ensure_topics(settings)
    name, events = topic(tenant, "events"), fleet_events(tenant, 1, 2 * SESSIONS)
    first = [each for each in events if int(each.session[1:]) < SESSIONS]
    later = [each for each in events if int(each.session[1:]) >= SESSIONS]

    async def emit(part: list[Event]) -> None:
        async with in_order(three.address, tenant, Random(1)) as send:
            for start in range(0, len(part), BURST):
                await send(part[start : start + BURST])

    await emit(first)
    worker = await asyncio.to_thread(start_worker, settings)
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    worker.terminate()
    await asyncio.to_thread(worker.wait, 120)
    async with in_order(three.address, tenant, Random(1)) as send:
        for each in later[:3]:
            await send([each])  # records of their own
    async with connected(make_admin(three.address)) as admin:
        await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(-1)})  # all that there are
    await emit(fleet_events(tenant, 2, 1))
    settings = settings.with_(metrics_port=free_port())
    await asyncio.to_thread(start_worker, settings)
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics", timeout=120) as page:
        found = re.search(rf'^fleetlore_expired_records_total{{.*"{name}".*}} (\S+)', page.read().decode(), re.M)
    assert found is not None and float(found[1]) == 3
    judged = {session for session, *_ in (await known(milvus, tenant)).judgments}
    assert {each.session for each in first} <= judged
