"""Measure what a second worker brings: one worker, then two, on the same topic of the embedded broker.

All stages run, without Milvus. The workers wait with their partitions assigned; then the topic is filled at once, and
the clock runs until everything is committed. Broker and workers share the cores, so the cores bound the gain. The bound
is computed from the CPU seconds of the run with one worker, and has its own row.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import peers
from benchmarks.cpu import cores, cpu_by_role
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.stack import answers
from benchmarks.traffic import TENANT, Traffic, publish, traffic
from benchmarks.worker import GROUP
from fleetlore.config import Settings
from streams.embedded.broker import free_port
from streams.embedded.stack import SESSION_TIMEOUT_SECONDS
from streams.offline.operator_word import wait_drained

EVENTS = 200_000
QUICK_EVENTS = 4_000
SPEEDUP_BAR = 1.7
# After the last worker is ready: the rebalance that it began must be over for the others too.
SETTLE_SECONDS = SESSION_TIMEOUT_SECONDS
DRAIN_SECONDS = 300.0


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
    rows = (
        Row("two workers", speedup, "× the rate of one worker", note=sent.describe()),
        Row("most that the cores allow", allowed, "× the rate of one worker"),
        *(
            Row(
                f"rate of {name}",
                run.rate,
                "events/s",
                note=f"{run.cpu / run.seconds:.2f} of {cores()} cores busy with workers and broker",
            )
            for name, run in (("one worker", one), ("two workers", two))
        ),
    )
    note = f"workers and broker share {cores()} cores, which allow {allowed:.2f} ×"
    return Report("scale", speedup, SPEEDUP_BAR, "× the rate of one worker", rows=rows, note=note)


def _drain(sent: Traffic, workers: int) -> Drained:
    with EmbeddedBroker() as broker, contextlib.ExitStack() as stack:
        publish(broker.address, [])
        ports = [free_port() for _ in range(workers)]
        for port in ports:
            stack.enter_context(_worker(broker.address, port))
        for port in ports:
            asyncio.run(answers(f"http://127.0.0.1:{port}/readyz"))
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
