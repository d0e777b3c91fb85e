"""Measure how it scales: a second worker, a hundred times the events, a thousand times the open sessions.

*Workers.* One worker, then two, on the same topic of the embedded broker, all stages, Milvus left out. The workers wait
with their partitions assigned; then the topic is filled at once, and the clock runs until everything is committed.
Where broker and workers share the cores, no more can come of the second worker than the cores have left: what they
allow is computed from the CPU seconds of the run with one worker, and stands beside the figure.

*Events and sessions.* What an event costs in one process without a broker (`benchmarks.growth`): after 10^5, 10^6 and
10^7 events, and with 10^3 to 10^6 sessions open at the same time. Flat means: at most a quarter more at the far end
than at the near one.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import peers
from benchmarks.cpu import cores, cpu_by_role
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, Traffic, publish, traffic
from benchmarks.worker import GROUP
from fleetlore.config import Settings
from fleetlore.errors import StackError
from streams.embedded.broker import free_port
from streams.embedded.stack import SESSION_TIMEOUT_SECONDS
from streams.offline.drain import wait_drained

EVENTS = 200_000
QUICK_EVENTS = 4_000
GROWTH = (1e5, 1e6, 1e7)
QUICK_GROWTH = (1e4, 5e4)
SESSIONS = (1e3, 1e4, 1e5, 1e6)
QUICK_SESSIONS = (1e2, 1e3)
SPEEDUP_BAR = 1.7
FLAT_BAR = 1.25
READY_SECONDS = 60.0
# After the last worker is ready: the rebalance that it began must be over for the others too.
SETTLE_SECONDS = SESSION_TIMEOUT_SECONDS
DRAIN_SECONDS = 300.0
GROWTH_SECONDS = 1_800.0


@dataclass(frozen=True, slots=True)
class Drained:
    """A topic that was worked off.

    Attributes:
        cpu: seconds of the workers and the broker.
    """

    events: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


def run(quick: bool) -> Report:
    sent = traffic(QUICK_EVENTS if quick else EVENTS)
    one, two = (_drain(sent, workers) for workers in (1, 2))
    allowed = min(2.0, cores() * one.seconds / one.cpu)
    speedup = two.rate / one.rate
    events, sessions = _events(QUICK_GROWTH if quick else GROWTH), _sessions(QUICK_SESSIONS if quick else SESSIONS)
    return Report(
        name="scale",
        figure=speedup,
        bar=SPEEDUP_BAR,
        unit="× the rate of one worker",
        peers={},
        rows=(
            Row(name="two workers", figure=speedup, unit="× the rate of one worker", note=sent.describe()),
            Row(name="most that the cores allow", figure=allowed, unit="× the rate of one worker"),
            *(
                Row(
                    name=f"rate of {name}",
                    figure=run.rate,
                    unit="events/s",
                    note=f"{run.cpu / run.seconds:.2f} of {cores()} cores busy with workers and broker",
                )
                for name, run in (("one worker", one), ("two workers", two))
            ),
        ),
        also=(events, sessions),
        note=f"workers and broker share {cores()} cores, which allow {allowed:.2f} ×",
    )


def _events(counts: tuple[float, ...]) -> Report:
    said = peers.run("benchmarks.growth", "events", *counts, timeout_seconds=GROWTH_SECONDS)
    return _flat("cost_by_events", "events have passed", said)


def _sessions(counts: tuple[float, ...]) -> Report:
    # A process for each: what a million sessions leave behind of memory must not be counted for the next.
    said = [peers.run("benchmarks.growth", "sessions", count, timeout_seconds=GROWTH_SECONDS)[0] for count in counts]
    return _flat("cost_by_open_sessions", "sessions are open", said)


def _flat(name: str, when: str, said: Any) -> Report:
    figure = said[-1]["us"] / said[0]["us"]
    return Report(
        name=name,
        figure=figure,
        bar=FLAT_BAR,
        unit=f"× the cost at {said[0]['n']:,}",
        peers={},
        higher_is_better=False,
        rows=tuple(
            row
            for each in said
            for row in (
                Row(name=f"when {each['n']:,} {when}", figure=each["us"], unit="µs of CPU per event"),
                Row(name=f"memory when {each['n']:,} {when}", figure=each["rss_mb"], unit="MB"),
            )
        ),
    )


def _drain(sent: Traffic, workers: int) -> Drained:
    with EmbeddedBroker() as broker, contextlib.ExitStack() as stack:
        publish(broker.address, [])
        ports = [free_port() for _ in range(workers)]
        for port in ports:
            stack.enter_context(_worker(broker.address, port))
        for port in ports:
            _until_ready(port)
        time.sleep(SETTLE_SECONDS)
        before = cpu_by_role()
        started = time.perf_counter()
        publish(broker.address, sent.records)
        settings = Settings(broker=broker.address, group=GROUP, tenants=(TENANT,))
        asyncio.run(wait_drained(settings, TENANT, DRAIN_SECONDS))
        seconds = time.perf_counter() - started
        return Drained(sent.events, seconds, cpu_by_role().total() - before.total())


@contextlib.contextmanager
def _worker(broker: str, port: int) -> Iterator[None]:
    # It never sees so many events: it works until it is stopped.
    endless = str(10**15)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", broker, endless, "all", str(port)],
        cwd=peers.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _until_ready(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as response,
        ):
            if response.status == 200:
                return
        time.sleep(0.1)
    raise StackError(f"a worker is not ready after {READY_SECONDS:.0f} s")
