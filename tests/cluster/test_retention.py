"""Records that retention deletes while workers are down are counted and reported, and the rest is processed."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from fleetlore.kafka.client import connected, make_admin
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import emit_in_bursts
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.served import metric
from tests.streams.broker_pipeline import StartWorker, known

DRAIN_SECONDS = 400.0
SESSIONS = 20


@pytest.mark.slow
async def test_records_that_expired_before_a_worker_came_to_them_are_counted(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    settings = three.settings(milvus, tenant)
    await ensure_topics(settings)
    name, events = topic(tenant, "events"), fleet_events(tenant, 1, 2 * SESSIONS)
    first = [each for each in events if int(each.session[1:]) < SESSIONS]
    later = [each for each in events if int(each.session[1:]) >= SESSIONS]

    await emit_in_bursts(three.address, tenant, first)
    worker = await asyncio.to_thread(start_worker, settings)
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    worker.terminate()
    await asyncio.to_thread(worker.wait, 120)
    await emit_in_bursts(three.address, tenant, later[:3], burst=1)  # records of their own
    async with connected(make_admin(three.address)) as admin:
        await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(-1)})  # all that there are
    await emit_in_bursts(three.address, tenant, fleet_events(tenant, 2, 1))
    settings = settings.with_(metrics_port=free_port())
    await asyncio.to_thread(start_worker, settings)
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    expired = metric(settings.metrics_port, rf'fleetlore_expired_records_total{{.*"{name}".*}} (\S+)')
    assert list(map(float, expired)) == [3]
    judged = {session for session, *_ in (await known(milvus, tenant)).judgments}
    assert {each.session for each in first} <= judged
