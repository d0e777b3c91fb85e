"""Records that the cluster deleted, compacted away or lost: workers and replicas notice, and go on."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import connected, make_admin, make_producer
from fleetlore.kafka.read import end_offsets, observer, read_to_end
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing import FakeClock
from fleetlore.wire.topics import DAY_SECONDS, TOPICS, topic
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.build import memory_item
from tests.chaos.emitting import emit_in_bursts
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.served import metric
from tests.streams.broker_pipeline import Reference, StartWorker, known

SESSIONS = 30
DRAIN_SECONDS = 400.0


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


# Age the records as a week and an hour would.
SOON = "segment.ms=1000,delete.retention.ms=1000,min.cleanable.dirty.ratio=0.01,file.delete.delay.ms=100"
COMPACTED_SECONDS = 300.0


@pytest.mark.slow
async def test_what_was_forgotten_and_compacted_away_is_not_kept_by_a_replica_that_comes_back(
    three: KafkaCluster, tenant: str
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), partitions=1, replication=3))
    name = topic(tenant, "items")
    of_topic = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", SOON)
    await asyncio.to_thread(three.configure, *of_topic)
    clock = FakeClock(0.0)
    replica = LoreReplica(three.address, tenant, clock=clock)

    async def known() -> set[str]:
        await replica.start()
        assert await replica.caught_up(120)
        await replica.close()
        return set(replica.index.items)

    async with connected(make_producer(three.address)) as producer:

        async def put(id: str, value: bytes | None) -> None:
            await producer.send_and_wait(name, value, key=id.encode())

        for id in ("gone", "stays"):
            await put(id, memory_item(id, tenant="x", pattern="class").to_json())
        assert await known() == {"gone", "stays"}
        await put("gone", None)
        async with asyncio.timeout(COMPACTED_SECONDS):
            while any(each.key == b"gone" for each in await read_to_end(three.address, [name], 120)):
                await asyncio.sleep(2.0)
                await put("stays", memory_item("stays", tenant="x", pattern="class").to_json())
        # No record says any more that it is gone, so the time that has passed must.
        assert await known() == {"gone", "stays"}
        clock.advance(8 * DAY_SECONDS)
        assert await known() == {"stays"}


NOTICED_SECONDS = 240.0
TRUNCATED = r'fleetlore_truncated_records_total{topic="(\S+)"} ([1-9]\S*)'


@pytest.mark.slow
@pytest.mark.parametrize("running", [True, False], ids=["running", "away"])
async def test_a_worker_that_the_broker_has_fewer_records_for_than_before_says_so_and_goes_on(
    running: bool,
    kafka: None,
    tmp_path: Path,
    milvus: str,
    tenant: str,
    start_worker: StartWorker,
    reference: Reference,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name, every = topic(tenant, "events"), fleet_events(tenant, 1, SESSIONS)
    # Before the follower fell behind, while it lagged, and after it was elected.
    first, lost, later = (
        [each for each in every if int(each.session[1:]) // (SESSIONS // 3) == third] for third in range(3)
    )
    with KafkaCluster(tmp_path / "kafka", brokers=3) as cluster:
        settings = cluster.settings(milvus, tenant)
        leader, follower, _ = cluster.brokers
        async with connected(make_admin(cluster.address)) as admin:
            # Two replicas: with the third broker there is a quorum of controllers while one of them is away.
            replicas = {0: [leader.node, follower.node]}
            spec = next(each for each in TOPICS if each.name == "events")
            configs = spec.configs(1) | {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            await admin.create_topics([NewTopic(name, -1, -1, replica_assignments=replicas, topic_configs=configs)])
        await ensure_topics(settings)

        async def end() -> int:
            async with observer(cluster.address) as consumer:
                return (await end_offsets(consumer, [TopicPartition(name, 0)]))[TopicPartition(name, 0)]

        worker = await asyncio.to_thread(start_worker, settings)
        await emit_in_bursts(cluster.address, tenant, first)
        await wait_drained(settings, tenant, DRAIN_SECONDS)
        kept = await end()
        await asyncio.to_thread(follower.kill)
        await emit_in_bursts(cluster.address, tenant, lost)
        await wait_drained(settings, tenant, DRAIN_SECONDS)
        acknowledged = await end()
        if not running:
            worker.terminate()
            await asyncio.to_thread(worker.wait, 120)
        await asyncio.to_thread(leader.kill)
        follower.launch()
        await asyncio.to_thread(follower.await_brokers, 2)
        async with asyncio.timeout(120):
            shown = None
            while shown != kept:
                with contextlib.suppress(BrokerUnavailable):  # until the follower is elected
                    shown = await end()
                await asyncio.sleep(0.5)
        if not running:
            settings = settings.with_(metrics_port=free_port())
            worker = await asyncio.to_thread(start_worker, settings)
        async with asyncio.timeout(NOTICED_SECONDS):
            while not (told := dict(await asyncio.to_thread(metric, settings.metrics_port, TRUNCATED))).get(name):
                await asyncio.sleep(0.5)
        assert float(told[name]) == acknowledged - kept
        await emit_in_bursts(cluster.address, tenant, later)
        leader.launch()
        await asyncio.to_thread(leader.await_brokers, 3)
        await wait_drained(settings, tenant, DRAIN_SECONDS)
        assert f"{name}[0]: the broker has lost {acknowledged - kept} records" in capfd.readouterr().err
        found = await known(milvus, tenant)
        # The worker had read what was lost, and reads again what is left: nothing counts twice.
        assert found.state_hash == (await reference(tenant, every)).state_hash
        assert worker.poll() is None
