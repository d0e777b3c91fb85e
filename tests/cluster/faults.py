"""Define the cases: what happens to brokers and workers while a fleet emits, and what the fleet emits."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.cloudevents import encode_record
from fleetlore.config import Settings
from fleetlore.kafka.read import observer, partitions_of
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import partition_for, topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.broker import RELEASE, free_port
from tests.chaos.accounting import account, add_rows
from tests.chaos.fleet import fleet_events
from tests.cluster.kafka_cluster import BEFORE, KafkaBroker, KafkaCluster, signal_child
from tests.streams.broker_pipeline import Reference

BURST = 32
SESSION_TIMEOUT_SECONDS = 6.0
AWAY_SECONDS = 8.0
STORM = 6
ABORTED = 4
# Longer than aiokafka waits for an answer.
REQUEST_SECONDS = 45.0
RESTARTS = 3
# Silent for 600 s a session is closed as continued; the pipeline in memory lets it be silent for an hour.
PAUSE_SECONDS, LATER_SECONDS = 700.0, 5000.0

Start = Callable[..., subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Scene:
    """The cluster and workers that faults hit while the fleet emits `events`."""

    cluster: KafkaCluster
    settings: Settings
    worker: subprocess.Popen[bytes]
    start: Start
    events: list[Event]

    async def another(self, clock_hours: int = 0) -> subprocess.Popen[bytes]:
        """Start one more worker of the same group, whose clock is so far ahead."""
        return await asyncio.to_thread(self.start, self.settings.with_(metrics_port=free_port()), clock_hours)


# Returns the number of processes killed.
Faults = Callable[[Scene], Awaitable[int]]


async def each_broker_killed(scene: Scene) -> int:
    """SIGKILL of one after the other: of each leader, and of the coordinator of the group."""
    for broker in scene.cluster.brokers:
        await _killed_for_a_while([broker])
    return 3


async def leader_and_coordinator_killed(scene: Scene) -> int:
    """SIGKILL of the leader of a partition of `events`, then of the group's coordinator, then of both at once."""
    kills = 0
    for whose in (("leader",), ("coordinator",), ("leader", "coordinator")):
        gone = await leads(scene, *whose)
        await _killed_for_a_while(gone)
        kills += len(gone)
    return kills


async def leads(scene: Scene, *whose: str) -> list[KafkaBroker]:
    """The brokers that lead the first partition of `events`, or coordinate the group."""
    async with observer(scene.settings.cluster, scene.settings.group) as consumer:
        [first, *_] = await partitions_of(consumer, topic(scene.settings.tenants[0], "events"))
        consumer.assign([first])
        await consumer.committed(first)
        await consumer.position(first)
        nodes = {
            "leader": consumer._client.cluster.leader_for_partition(first),
            "coordinator": consumer._coordinator.coordinator_id,
        }
    return [each for each in scene.cluster.brokers if each.node in {nodes[name] for name in whose}]


async def brokers_restarted(scene: Scene) -> int:
    """SIGTERM of one after the other, as an upgrade does it."""
    for broker in scene.cluster.brokers:
        await asyncio.to_thread(broker.stop)
        broker.launch()
        await asyncio.to_thread(broker.await_brokers, 3)
    return 0


async def brokers_upgraded(scene: Scene) -> int:
    """Each stopped as the release before and started as the new one, then the features of the cluster raised."""
    for broker in scene.cluster.brokers:
        assert broker.release == BEFORE
        broker.release = RELEASE
    await brokers_restarted(scene)
    await asyncio.to_thread(scene.cluster.raise_features, RELEASE.rpartition(".")[0])
    return 0


async def clocks_off(scene: Scene) -> int:
    """A second worker's clock is five hours ahead and a third one's five behind."""
    for hours in (5, -5):
        await scene.another(clock_hours=hours)
    return 0


async def two_brokers_away(scene: Scene) -> int:
    """Fewer replicas in sync than a write needs, and no quorum of controllers."""
    gone = scene.cluster.brokers[1:]
    await _killed_for_a_while(gone)
    return len(gone)


async def _killed_for_a_while(gone: Sequence[KafkaBroker]) -> None:
    for broker in gone:
        await asyncio.to_thread(broker.kill)
    await asyncio.sleep(AWAY_SECONDS)
    for broker in gone:
        broker.launch()
    for broker in gone:
        await asyncio.to_thread(broker.await_brokers, 3)


async def _freeze(broker: KafkaBroker, seconds: float) -> None:
    broker.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        broker.resume()


async def a_broker_frozen(scene: Scene) -> int:
    for broker in scene.cluster.brokers:
        await _freeze(broker, AWAY_SECONDS)
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
        await asyncio.to_thread(another.wait, 120)
    return STORM // 2


async def offsets_deleted(scene: Scene) -> int:
    """The group's offsets are gone, and the next worker reads all again."""
    await asyncio.sleep(AWAY_SECONDS)
    os.killpg(scene.worker.pid, signal.SIGKILL)
    admin = AdminClient({"bootstrap.servers": scene.cluster.address, "log_level": 0})
    async with asyncio.timeout(120):
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
    """Made-up sessions, named like real ones and sent among them."""
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
    await _freeze(scene.cluster.brokers[0], REQUEST_SECONDS)
    return 0


async def rolling_restart(scene: Scene) -> int:
    """One worker comes and the one before it goes by SIGTERM, three times."""
    going = scene.worker
    for _ in range(RESTARTS):
        coming = await scene.another()
        going.terminate()
        await asyncio.to_thread(going.wait, 120)
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


async def assert_nothing_lost(
    name: str, settings: Settings, events: list[Event], reference: Reference, began: float, kills: int = 0
) -> None:
    [tenant] = settings.tenants
    async with MilvusStore(settings.milvus, "", StaticEncoder(), Metrics("test")) as store:
        expected = (await reference(tenant, events)).state_hash
        seconds = time.monotonic() - began
        found = await account(name, tenant, settings, store, events, len(events), kills, expected, seconds)
    if page := os.environ.get("CHAOS_PAGE"):
        add_rows(Path(page), "cluster", [found])
    assert (found.lost, found.doubled, found.equal) == (0, 0, True), found


CASES = {
    "each broker killed in turn": each_broker_killed,
    "leader, coordinator and both killed": leader_and_coordinator_killed,
    "brokers restarted in turn": brokers_restarted,
    "brokers upgraded in turn": brokers_upgraded,
    "workers whose clocks are five hours off": clocks_off,
    "two brokers of three away": two_brokers_away,
    "each broker frozen in turn": a_broker_frozen,
    "a worker asleep": a_worker_asleep,
    "workers come and go": workers_come_and_go,
    "offsets deleted": offsets_deleted,
    "sent again in transactions": sent_again_in_transactions,
    "aborted transactions": aborted_transactions,
    "quotas of the brokers": under_quotas,
    "a broker frozen past a request's time": frozen_past_a_request,
    "rolling restart with abandoned sessions": rolling_restart,
    "workers come and go, sessions pause": workers_come_and_go,
}
# Runs an earlier release, so it needs its own cluster.
BROKERS_BEFORE = {"brokers upgraded in turn"}
CHANGED = {
    "rolling restart with abandoned sessions": with_abandoned,
    "workers come and go, sessions pause": with_pauses,
}
