"""Nothing is lost or doubled on three brokers (RF 3, min ISR 2) while brokers and workers are killed and frozen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.risk.encoder import StaticEncoder
from fleetlore.wire.events import Event
from fleetlore.wire.records import BATCH_HEADERS, encode_record
from fleetlore.wire.topics import partition_for, topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.drain import wait_drained
from streams.offline.state_hash import Knowledge
from tests.chaos.accounting import Account, account, put_table, table
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.streams.conftest import end, guarded, wait_ready, worker_environ

SESSIONS = 60
BURST = 32
SESSION_TIMEOUT_SECONDS = 6.0
AWAY_SECONDS = 8.0
DRAIN_SECONDS = 150.0
STORM = 6
ABORTED = 4
LAG_SECONDS = 30.0
LAST_CHARACTERS = 60_000
# Longer than aiokafka waits for an answer.
REQUEST_SECONDS = 45.0
RESTARTS = 3
# Silent for 600 s a session is closed as continued; the pipeline in memory lets it be silent for an hour.
PAUSE_SECONDS, LATER_SECONDS = 700.0, 5000.0

Start = Callable[[Settings], subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Scene:
    """What faults are injected into while the fleet emits `events`."""

    cluster: KafkaCluster
    settings: Settings
    worker: subprocess.Popen[bytes]
    start: Start
    events: list[Event]

    async def another(self) -> subprocess.Popen[bytes]:
        """Start one more worker of the same group."""
        return await asyncio.to_thread(self.start, self.settings.with_(metrics_port=free_port()))


# Returns the number of processes killed.
Faults = Callable[[Scene], Awaitable[int]]


async def nothing(scene: Scene) -> int:
    return 0


async def each_broker_killed(scene: Scene) -> int:
    """SIGKILL of one after the other: of each leader, and of the coordinator of the group."""
    for broker in scene.cluster.brokers:
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(AWAY_SECONDS)
        broker.launch()
        await asyncio.to_thread(broker.await_brokers, 3)
    return 3


async def two_brokers_away(scene: Scene) -> int:
    """Fewer replicas in sync than a write needs, and no quorum of controllers."""
    gone = scene.cluster.brokers[1:]
    for broker in gone:
        await asyncio.to_thread(broker.kill)
    await asyncio.sleep(AWAY_SECONDS)
    for broker in gone:
        broker.launch()
    for broker in gone:
        await asyncio.to_thread(broker.await_brokers, 3)
    return 2


async def a_broker_frozen(scene: Scene) -> int:
    for broker in scene.cluster.brokers:
        broker.pause()
        try:
            await asyncio.sleep(AWAY_SECONDS)
        finally:
            broker.resume()
    return 0


async def a_worker_asleep(scene: Scene) -> int:
    """SIGSTOP for twice its session timeout."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        signal_child(scene.worker, number)
        await asyncio.sleep(2 * SESSION_TIMEOUT_SECONDS)
    return 0


async def workers_come_and_go(scene: Scene) -> int:
    """Each rebalance takes all partitions of all workers; every second one that goes is killed."""
    for turn in range(STORM):
        another = await scene.another()
        await asyncio.sleep(1.0)
        if turn % 2:
            os.killpg(another.pid, signal.SIGKILL)
        else:
            another.terminate()
        await asyncio.to_thread(another.wait, 40)
    return STORM // 2


async def offsets_deleted(scene: Scene) -> int:
    """The group's offsets are gone, and the next worker reads all again."""
    await asyncio.sleep(AWAY_SECONDS)
    os.killpg(scene.worker.pid, signal.SIGKILL)
    admin = AdminClient({"bootstrap.servers": scene.cluster.address, "log_level": 0})
    async with asyncio.timeout(60):
        while True:  # the coordinator takes the killed worker for a member until its session is over
            await asyncio.sleep(1.0)
            with contextlib.suppress(KafkaException):
                admin.delete_consumer_groups([scene.settings.group])[scene.settings.group].result(10)
                break
    await scene.another()
    return 1


async def sent_again_in_transactions(scene: Scene) -> int:
    """By a client of another kind, at the end: each partition ends with the marker of a transaction."""
    await asyncio.sleep(AWAY_SECONDS)
    name = topic(scene.settings.tenants[0], "events")
    async with AIOKafkaProducer(bootstrap_servers=scene.cluster.address, transactional_id=name) as producer:
        for partition in range(scene.settings.partitions):
            mine = [each for each in scene.events if partition_for(each.session, 2) == partition][:BURST]
            async with producer.transaction():
                await producer.send_and_wait(name, encode_record(mine), partition=partition, headers=BATCH_HEADERS)
    return 0


async def aborted_transactions(scene: Scene) -> int:
    """Of sessions that never happened, among those that did and by their names."""
    tenant = scene.settings.tenants[0]
    name = topic(tenant, "events")
    async with AIOKafkaProducer(bootstrap_servers=scene.cluster.address, transactional_id=name) as producer:
        for turn in range(ABORTED):
            await producer.begin_transaction()
            for partition in range(scene.settings.partitions):
                events = [
                    each
                    for each in fleet_events(tenant, 2 + turn, BURST)
                    if partition_for(each.session, 2) == partition
                ]
                for start in range(0, len(events), BURST):
                    record = encode_record(events[start : start + BURST])
                    await producer.send_and_wait(name, record, partition=partition, headers=BATCH_HEADERS)
            await asyncio.sleep(1.0)
            await producer.abort_transaction()
    return 0


async def under_quotas(scene: Scene) -> int:
    """All clients may write 50 kB a second and take a fiftieth of a request thread."""
    quotas = ("--entity-type", "clients", "--entity-default", "--alter")
    await asyncio.to_thread(
        scene.cluster.configure, *quotas, "--add-config", "producer_byte_rate=50000,request_percentage=2"
    )
    try:
        await asyncio.sleep(2 * AWAY_SECONDS)
    finally:
        await asyncio.to_thread(
            scene.cluster.configure, *quotas, "--delete-config", "producer_byte_rate,request_percentage"
        )
    return 0


async def frozen_past_a_request(scene: Scene) -> int:
    """A broker that holds requests until their clients have given them up, and takes them then."""
    broker = scene.cluster.brokers[0]
    broker.pause()
    try:
        await asyncio.sleep(REQUEST_SECONDS)
    finally:
        broker.resume()
    return 0


async def frozen_while_assigned(scene: Scene) -> int:
    """Partitions are assigned anew while the leader of some hangs, which answers once another leads them."""
    broker = scene.cluster.brokers[-1]
    broker.pause()
    try:
        another = await scene.another()
        await asyncio.sleep(2 * AWAY_SECONDS)
    finally:
        broker.resume()
    os.killpg(another.pid, signal.SIGKILL)
    return 1


async def rolling_restart(scene: Scene) -> int:
    """One worker comes and the one before it goes by SIGTERM, three times."""
    going = scene.worker
    for _ in range(RESTARTS):
        coming = await scene.another()
        going.terminate()
        await asyncio.to_thread(going.wait, 40)
        going = coming
        await asyncio.sleep(1.0)
    return 0


def all_ended(events: list[Event]) -> list[Event]:
    return events


def with_abandoned(events: list[Event]) -> list[Event]:
    """Every tenth session has no end; on each partition the clock of later events closes it as continued."""
    left = [each for each in events if each.kind != "session.ended" or int(each.session[1:]) % 10]
    names = [next(name for name in map("late{}".format, range(99)) if partition_for(name, 2) == n) for n in range(2)]
    later = [each for each in events if each.session == "s1"]
    return left + [each._replace(session=name, time=each.time + LATER_SECONDS) for name in names for each in later]


def with_pauses(events: list[Event]) -> list[Event]:
    """Every tenth session pauses for longer than a session may be silent, and goes on."""
    return [
        each._replace(time=each.time + PAUSE_SECONDS) if each.sequence >= 4 and not int(each.session[1:]) % 10 else each
        for each in events
    ]


def lag(settings: Settings) -> float:
    """What the worker says that it has not processed yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics", timeout=10) as page:
        return sum(map(float, re.findall(r"^fleetlore_consumer_lag_records{.*} (\S+)", page.read().decode(), re.M)))


CASES = {
    "nothing": nothing,
    "each broker killed in turn": each_broker_killed,
    "two brokers of three away": two_brokers_away,
    "each broker frozen in turn": a_broker_frozen,
    "a worker asleep": a_worker_asleep,
    "workers come and go": workers_come_and_go,
    "offsets deleted": offsets_deleted,
    "sent again in transactions": sent_again_in_transactions,
    "aborted transactions": aborted_transactions,
    "quotas of the brokers": under_quotas,
    "a broker frozen past a request's time": frozen_past_a_request,
    "a broker frozen while partitions are assigned": frozen_while_assigned,
    "rolling restart with abandoned sessions": rolling_restart,
    "workers come and go, sessions pause": workers_come_and_go,
}
CHANGED = {
    "rolling restart with abandoned sessions": with_abandoned,
    "workers come and go, sessions pause": with_pauses,
}

pytestmark = pytest.mark.slow


class Workers:
    """Workers that tell their state where not everything is worked in.

    Args:
        folder: for what each says.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, settings: Settings) -> subprocess.Popen[bytes]:
        told = str(self._folder / str(len(self._running)))
        command = (sys.executable, "-m", "tests.streams.told_worker", told)
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


def signal_child(worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a worker, not its supervisor."""
    for child in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split():
        os.kill(int(child), number)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def accounts() -> list[Account]:
    return []


@pytest.mark.parametrize("name", CASES)
async def test_nothing_is_lost_or_doubled(
    name: str,
    three: KafkaCluster,
    milvus: str,
    tenant: str,
    workers: Workers,
    reference: Callable[[str, Sequence[Event]], Awaitable[Knowledge]],
    accounts: list[Account],
) -> None:
    settings = Settings(
        broker=three.address,
        milvus=milvus,
        group=tenant,
        tenants=(tenant,),
        partitions=2,
        replication=3,
        session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
        metrics_port=free_port(),
    )
    await ensure_topics(settings)
    began, events = time.monotonic(), CHANGED.get(name, all_ended)(fleet_events(tenant, 1, SESSIONS))
    worker = await asyncio.to_thread(workers.start, settings)
    happening = asyncio.create_task(CASES[name](Scene(three, settings, worker, workers.start, events)))
    async with in_order(three.address, tenant, Random(1)) as send:
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
    accounts.append(found)
    if page := os.environ.get("CHAOS_PAGE"):
        put_table(Path(page), "cluster", table(accounts))
    assert (found.lost, found.doubled, found.equal) == (0, 0, True), found
