"""Four workers are restarted in turn while a fleet emits that abandons one session in a hundred."""

import asyncio
import contextlib
import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

import pytest

from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for, topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.chaos.accounting import account, put_table
from tests.chaos.emitting import in_order
from tests.chaos.fleet import BASE_TIME, fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.served import metric
from tests.streams.broker_pipeline import Reference, StartWorker

WORKERS = PARTITIONS = 4
SESSIONS = 2000
BURST = 16
# The fleet's day goes by faster than the test's: 40 s of the fleet in a second.
BURSTS_PER_SECOND, SECONDS_PER_BURST = 10.0, 4.0
ABANDONED = 100
SILENT_SECONDS = 600.0
# After which also a log in memory, where nothing is silent for long, has closed what was abandoned.
LATER_SECONDS = 5000.0
CALM_SECONDS = 15.0
PROBE_SECONDS = 0.25
DRAIN_SECONDS = 400.0
PROBE = re.compile(rb"probe_\d+")
UNCOMMITTED = r'fleetlore_uncommitted_records{partition="(\d+)",topic="\S+\.events"} (\S+)'

pytestmark = pytest.mark.slow


def abandoning(tenant: str) -> list[Event]:
    """The fleet's events, spread over its time; every hundredth session has no end, and the last ones come later."""
    events = [
        each._replace(time=BASE_TIME + number // BURST * SECONDS_PER_BURST)
        for number, each in enumerate(fleet_events(tenant, 1, SESSIONS))
        if each.kind != "session.ended" or int(each.session[1:]) % ABANDONED
    ]
    last, some = events[-1].time, [each for each in events if each.session == "s1"]
    later = {partition_for(name, PARTITIONS): name for name in map("later{}".format, range(99))}
    assert len(later) == PARTITIONS
    return events + [each._replace(session=name, time=last + LATER_SECONDS) for name in later.values() for each in some]


def probe(tenant: str, number: int, at: float) -> list[Event]:
    """A session whose failure no other has."""
    failed = {ev.TOOL: f"probe_{number}", ev.ARGUMENTS: {"n": number}, ev.RESULT: "", ev.ERROR_TYPE: "ValueError"}
    steps: list[tuple[ev.Kind, dict[str, Any]]] = [
        ("session.started", {ev.GOAL: "probe", ev.TASK: "probe"}),
        ("outcome", failed),
        ("session.ended", {ev.OUTCOME: "failure"}),
    ]
    return [Event(kind, tenant, "prober", f"probe{number}", n, at, data) for n, (kind, data) in enumerate(steps)]


class Fleet:
    """Emits, probes how soon a failure is known, and watches how much is not committed.

    Attributes:
        waits: when each probe was sent, and the seconds until its pattern was on the topic.
        uncommitted: the most records of a partition of `events` that a restart would have read again.
    """

    def __init__(self, settings: Settings, events: Sequence[Event]) -> None:
        self._settings = settings
        [self._tenant] = settings.tenants
        self._events = events
        self._now = events[0].time
        self.stopping = False
        self.ports: list[int] = []
        self.sent: list[Event] = []
        self.waits: list[tuple[float, float]] = []
        self.uncommitted: Counter[int] = Counter()

    async def emit(self, bursts_per_second: float) -> None:
        """Emit all, or until `stopping`."""
        async with in_order(self._settings.broker, self._tenant, Random(1)) as send:
            for start in range(0, len(self._events), BURST):
                if self.stopping:
                    break
                burst = list(self._events[start : start + BURST])
                self._now = burst[0].time
                await send(burst)
                self.sent += burst
                await asyncio.sleep(1 / bursts_per_second)

    async def probe(self) -> None:
        names: dict[bytes, float] = {}
        patterns = make_consumer(self._settings.cluster, topic(self._tenant, "patterns"), fetch_max_wait_ms=50)

        async def hear() -> None:
            async for record in patterns:
                for name in PROBE.findall(record.value or b""):
                    if (at := names.pop(name, None)) is not None:
                        self.waits.append((at, time.monotonic() - at))

        async with connected(patterns), in_order(self._settings.broker, self._tenant, Random(1)) as send:
            hearing = asyncio.create_task(hear())
            try:
                for number in count():
                    if self.stopping:
                        break
                    events = probe(self._tenant, number, self._now)
                    names[f"probe_{number}".encode()] = time.monotonic()
                    await send(events)
                    self.sent += events
                    await asyncio.sleep(PROBE_SECONDS)
            finally:
                hearing.cancel()

    async def watch(self) -> None:
        while True:
            for port in self.ports:
                with contextlib.suppress(OSError):
                    for partition, records in await asyncio.to_thread(metric, port, UNCOMMITTED):
                        known = self.uncommitted[int(partition)]
                        self.uncommitted[int(partition)] = max(known, int(float(records)))
            await asyncio.sleep(0.5)


async def test_restarts_lose_nothing_and_read_no_more_again_than_silence_keeps_open(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker, reference: Reference
) -> None:
    settings = three.settings(milvus, tenant, partitions=PARTITIONS, silent_seconds=SILENT_SECONDS)
    await ensure_topics(settings)
    began, events = time.monotonic(), abandoning(tenant)
    fleet = Fleet(settings, [each for each in events if not each.session.startswith("later")])

    async def started() -> subprocess.Popen[bytes]:
        fleet.ports.append(free_port())
        return await asyncio.to_thread(start_worker, settings.with_(metrics_port=fleet.ports[-1]))

    workers = list(await asyncio.gather(*(started() for _ in range(WORKERS))))
    emitting = [asyncio.create_task(each) for each in (fleet.emit(BURSTS_PER_SECOND), fleet.probe())]
    watching = asyncio.create_task(fleet.watch())
    await asyncio.sleep(CALM_SECONDS)
    restarts = [time.monotonic()]
    for worker in workers[:]:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 120) == 0
        workers[workers.index(worker)] = await started()
        await asyncio.sleep(CALM_SECONDS)
        restarts.append(time.monotonic())
    fleet.stopping = True
    await asyncio.gather(*emitting)
    watching.cancel()
    late = Fleet(settings, [each for each in events if each.session.startswith("later")])
    await late.emit(BURSTS_PER_SECOND)
    await wait_drained(settings, tenant, DRAIN_SECONDS)

    calm = [wait for at, wait in fleet.waits if restarts[0] - CALM_SECONDS / 2 < at < restarts[0]]
    usual = quantiles(calm, n=100)[-1]
    # For each restart: seconds until the last probe that took longer than nearly all earlier ones.
    recovered = [
        max((at + wait - begin for at, wait in fleet.waits if begin < at < following and wait > usual), default=0.0)
        for begin, following in pairwise(restarts)
    ]
    async with observer(settings.cluster) as consumer:
        ends = await end_offsets(consumer, await partitions_of(consumer, topic(tenant, "events")))
    seconds = fleet.sent[-1].time - fleet.sent[0].time
    minutes = max(fleet.uncommitted[each.partition] / (end / seconds) / 60 for each, end in ends.items())
    store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
    sent = sorted([*fleet.sent, *late.sent], key=lambda each: each.time)
    expected = (await reference(tenant, sent)).state_hash
    found = await account("", tenant, settings, store, sent, len(sent), 0, expected, time.monotonic() - began)
    await store.close()
    sessions, ended = {each.session for each in sent}, {each.session for each in sent if each.kind == "session.ended"}
    times: defaultdict[str, list[float]] = defaultdict(list)
    for each in fleet.sent:
        times[each.session].append(each.time)
    longest = max(max(of_one) - min(of_one) for of_one in times.values())
    spans = ", ".join(f"{each:.0f}" for each in recovered)
    figures = [
        "| | |",
        "| --- | ---: |",
        f"| events, of which lost / doubled | {len(sent):,} / {found.lost} / {found.doubled} |",
        f"| state equal | {'yes' if found.equal else 'NO'} |",
        f"| sessions, of which never ended | {len(sessions):,}, {len(sessions - ended):,} |",
        f"| most that a restart would read again, minutes of the fleet's time | {minutes:.1f} |",
        f"| longest session, minutes of the fleet's time | {longest / 60:.1f} |",
        f"| lore before: median, p99 of {len(calm)} probes, s | {median(calm):.2f}, {usual:.2f} |",
        f"| until lore is as soon as that p99 again, s after each SIGTERM | {spans} |",
    ]
    print("\n".join(figures))
    if page := os.environ.get("CHAOS_PAGE"):
        put_table(Path(page), "four workers", figures)
    assert (found.lost, found.doubled, found.equal) == (0, 0, True), found
    # Silence counts from the last event and the commit stands at the first; it is looked for every eighth of its time.
    assert minutes * 60 <= SILENT_SECONDS * 9 / 8 + longest
    for worker in workers:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 120) == 0
