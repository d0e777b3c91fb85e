"""Broker settings: its own clock, idempotent producers, thousands of partitions, and few fetches."""

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import RequestTimedOutError

from fleetlore.agent.fleet import Fleet
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.client import connected, make_admin, make_producer
from fleetlore.kafka.read import observer, partitions_of
from fleetlore.wire.topics import TOPICS, topic
from sinks import topics
from sinks.topics import Allowed, TopicAdmin, ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from streams.runtime.worker import run_worker
from tests.cluster.kafka_cluster import KafkaCluster
from tests.streams.broker_pipeline import StartWorker

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Its client waits for an answer for 40 s.
HANGING_SECONDS = 120.0


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS, -40 * DAY_MS])
async def test_a_client_with_a_wrong_clock_is_heard(three: KafkaCluster, tenant: str, ahead_ms: int) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), replication=3))
    now = time.time() * 1000
    async with connected(make_producer(three.address)) as producer:
        sent = await producer.send_and_wait(topic(tenant, "events"), b"x", timestamp_ms=int(now + ahead_ms))
    assert abs(sent.timestamp - now) < 60_000, "the broker's time"
    async with observer(three.address) as consumer:
        part = TopicPartition(sent.topic, sent.partition)
        found = await consumer.offsets_for_times({part: int(now - 60_000)})
        assert found[part].offset == sent.offset, "a backfill finds it by when it came"


async def test_what_is_stated_is_what_the_cluster_has(three: KafkaCluster, tenant: str) -> None:
    settings = Settings(broker=three.address, tenants=(tenant,), replication=3)
    async with connected(make_admin(three.address)) as admin:
        changed = {"message.timestamp.type": "CreateTime", "unclean.leader.election.enable": "true"}
        await admin.create_topics([NewTopic(topic(tenant, "events"), 4, 3, topic_configs=changed)])
    await ensure_topics(settings)
    async with TopicAdmin(settings).connected() as topics:
        found = {each.setting: each for each in await topics.compare(Allowed())}
        assert found.keys() == {"message.timestamp.type", "unclean.leader.election.enable", "min.insync.replicas"} | (
            {"retention.ms"} & found.keys()
        )
        assert {each.state for each in await topics.apply(found.values())} == {"done"}
        async with asyncio.timeout(120):
            while await topics.compare(Allowed()):
                await asyncio.sleep(0.1)


async def test_a_record_that_is_sent_again_after_its_answer_was_lost_is_there_once(
    three: KafkaCluster, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), replication=3))
    name, send, lost = topic(tenant, "patterns"), AIOKafkaConnection.send, []

    async def lose_the_answer(self: AIOKafkaConnection, request: Any, expect_response: bool = True) -> Any:
        answer = await send(self, request, expect_response)
        if type(request).__name__.startswith("ProduceRequest") and len(lost) < 2:
            lost.append(request)
            raise RequestTimedOutError
        return answer

    monkeypatch.setattr(AIOKafkaConnection, "send", lose_the_answer)
    ends = {}
    for kind in (make_producer, lambda address: AIOKafkaProducer(bootstrap_servers=address, acks="all")):
        lost.clear()
        async with connected(kind(three.address)) as producer:
            await producer.send_and_wait(name, b"x", key=b"k", partition=len(ends))
        assert len(lost) == 2
        async with observer(three.address) as consumer:
            part = TopicPartition(name, len(ends))
            ends[len(ends)] = (await consumer.end_offsets([part]))[part]
    assert ends == {0: 1, 1: 3}


@pytest.mark.slow
async def test_three_hundred_tenants_are_made_at_once_and_served_by_two_groups(
    kafka: None, tmp_path: Path, own_milvus: str, start_worker: StartWorker
) -> None:
    """Kafka refuses a request for more than 10,000 partitions; these are 11,700."""
    tenants = tuple(f"t{number:03}" for number in range(300))
    with KafkaCluster(tmp_path / "kafka", brokers=3) as cluster:
        settings = Settings(broker=cluster.address, tenants=tenants, milvus=own_milvus)
        started = time.monotonic()
        assert len(await ensure_topics(settings)) == 300 * len(TOPICS)
        print(f"300 tenants created in {time.monotonic() - started:.0f} s")
        assert await ensure_topics(settings) == []
        with pytest.raises(ConfigError, match="another FLEETLORE_GROUP"):
            run_worker(settings)
        workers = []
        for group in (tenants[:150], tenants[150:]):
            started = time.monotonic()
            half = settings.with_(tenants=group, group=group[0], metrics_port=free_port())
            workers.append(await asyncio.to_thread(start_worker, half))
            print(f"a worker of 150 tenants ready after {time.monotonic() - started:.0f} s")
        for tenant in (tenants[0], tenants[-1]):
            async with Fleet("agent", broker=cluster.address, tenant=tenant) as fleet:
                async with fleet.session("find a folder") as session, session.action("ls", {"path": "/x"}) as action:
                    action.fail("FileNotFoundError", "no such folder")
                assert await fleet.flush(120)
        for tenant in (tenants[0], tenants[-1]):
            group = tenants[0] if tenant == tenants[0] else tenants[150]
            await wait_drained(settings.with_(group=group), tenant, 60.0)
        for worker in workers:
            before = cpu_seconds(worker)
            await asyncio.sleep(20)
            print(f"idle: {(cpu_seconds(worker) - before) / 20:.1%} of a core")
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, 120) == 0


def cpu_seconds(worker: subprocess.Popen[bytes]) -> float:
    """The process id of the worker itself, the child of its supervisor."""
    (child,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_an_idle_agent_asks_a_cluster_of_three_five_times_a_second_at_the_most(
    three: KafkaCluster, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_topics(Settings(broker=three.address, tenants=(tenant,), replication=3))
    send, asked = AIOKafkaConnection.send, []

    def counted(self: AIOKafkaConnection, request: Any, expect_response: bool = True) -> Any:
        asked.append(type(request).__name__)
        return send(self, request, expect_response)

    monkeypatch.setattr(AIOKafkaConnection, "send", counted)
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", "A" * 43 + "=")
    async with Fleet("idle", broker=three.address, tenant=tenant):
        await asyncio.sleep(3)
        asked.clear()
        await asyncio.sleep(10)
        fetches = sum(name.startswith("FetchRequest") for name in asked)
    print(f"{fetches / 10} fetches a second")
    assert 0 < fetches <= 50


@pytest.mark.slow
async def test_a_worker_whose_topics_are_grown_ends_and_says_why(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = three.settings(milvus, tenant, partitions=4)
    worker = await asyncio.to_thread(start_worker, settings)
    admin = AIOKafkaAdminClient(bootstrap_servers=three.address)
    async with connected(admin):
        await admin.create_partitions({topic(tenant, "events"): NewPartitions(8)})
    code = await asyncio.to_thread(worker.wait, topics.WATCH_SECONDS + 40)
    assert code == 1
    said = capfd.readouterr()
    assert "events had 4 partitions" in said.out + said.err
    async with observer(three.address) as consumer:
        assert len(await partitions_of(consumer, topic(tenant, "events"))) == 8
    await asyncio.to_thread(start_worker, settings)


@pytest.mark.slow
async def test_a_worker_whose_broker_hangs_while_it_starts_waits_for_it(
    kafka: None, tmp_path: Path, milvus: str, tenant: str, start_worker: StartWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    with KafkaCluster(tmp_path / "kafka") as cluster:
        settings = cluster.settings(milvus, tenant, partitions=4, replication=1)
        [broker] = cluster.brokers
        starting = asyncio.create_task(asyncio.to_thread(start_worker, settings))

        async def says(word: str) -> None:
            async with asyncio.timeout(HANGING_SECONDS):
                while word not in capfd.readouterr().err:
                    await asyncio.sleep(0.05)

        await says("serves")  # the broker answers, and the worker imports what it needs
        broker.pause()
        try:
            await says("trying again")
        finally:
            broker.resume()
        worker = await starting
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 120) == 0
