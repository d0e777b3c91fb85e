"""Measure the time from a first failure to a usable hint at another agent.

1,000 agents in two processes make 2,000 calls a second (`benchmarks.immunity_load`) on the embedded stack. Broker,
Milvus Lite, one worker and the agents share this machine. No trainer runs, because it takes no part in this. The clock
starts when the new failure has happened, before the agent records it. It stops when `advise()` of an agent in the other
process holds its pattern. A failure that no other agent learns of counts as infinitely late.

A rate is sustained if the agents kept to it, lost nothing, and the pipeline had processed everything two seconds after
the last event. If 2,000 calls a second are not sustained, the time is that of a growing queue, and the note says so.

The rival runs the same loop with the same agents: a SQLite journal that all processes share and poll every 100 ms.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks.cpu import cpu_by_role
from benchmarks.immunity_load import Plan, Result
from benchmarks.peers import ROOT
from benchmarks.report import Report, Row
from fleetlore.config import DEFAULT_TENANT
from fleetlore.errors import StackError
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained

RATE = 2_000.0
P50_BAR_MS = 55.0
P99_BAR_MS = 125.0
SETTLE_SECONDS = 2.0
KEPT_UP = 0.98  # of the rate that was asked for
LINE_BYTES = 64 * 1024 * 1024

JOURNAL, REFERENCE = "journal 0.1", "SQLite journal polled every 100 ms"
PLAN = Plan(
    memory="fleet", where="", agents=1_000, processes=2, calls_per_second=RATE, seconds=40.0, warm_up_seconds=10.0,
    wait_seconds=30.0,
)  # fmt: skip


@dataclass(slots=True)
class Run:
    """The result of a plan.

    Attributes:
        drained_seconds: from the last event until the pipeline had worked in everything. It is None for a memory
        without a pipeline.
        cpu: CPU seconds by role, from the first event until then.
    """

    plan: Plan
    results: list[Result]
    drained_seconds: float | None = None
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(result.asks for result in self.results)

    @property
    def met(self) -> dict[int, float]:
        return {number: at for result in self.results for number, at in result.met.items()}

    @property
    def milliseconds(self) -> list[float]:
        learned = {number: at for result in self.results for number, at in result.learned.items()}
        return [1000 * (learned.get(number, math.inf) - at) for number, at in self.met.items()]

    @property
    def sustained(self) -> bool:
        kept = self.calls / self.plan.seconds >= KEPT_UP * self.plan.calls_per_second
        drained = self.drained_seconds is None or self.drained_seconds <= SETTLE_SECONDS
        return kept and drained and not any(result.lost for result in self.results)

    def rows(self, name: str) -> list[Row]:
        cpu = {**self.cpu, "agents": sum(result.cpu_seconds for result in self.results)}
        lines = [
            Row(f"{name}, p50", percentile(self.milliseconds, 0.50), "ms", note=self._describe()),
            Row(f"{name}, p99", percentile(self.milliseconds, 0.99), "ms"),
            *(Row(f"  {role}", seconds / self.calls * 1e6, "µs of CPU per call") for role, seconds in cpu.items()),
            Row(
                "  one question before a call",
                sum(result.ask_seconds for result in self.results) / self.calls * 1e6,
                "µs",
            ),
            Row(
                "  agents behind their timetable, p99", max(result.late_seconds for result in self.results) * 1000, "ms"
            ),
        ]
        if self.drained_seconds is not None:
            lines.append(Row("  worked in after the last event", self.drained_seconds, "s"))
        return lines

    def _describe(self) -> str:
        lost, events = (sum(getattr(result, name) for result in self.results) for name in ("lost", "sent"))
        return (
            f"{len(self.met)} new failures; {self.calls / self.plan.seconds:,.0f} calls/s, "
            f"{events / self.plan.seconds:,.0f} events/s of {self.plan.agents} agents in "
            f"{self.plan.processes} processes, {lost} lost, {'sustained' if self.sustained else 'NOT sustained'}"
        )


def run(quick: bool) -> Report:
    plan = PLAN
    if quick:
        plan = replace(PLAN, agents=50, seconds=4.0, warm_up_seconds=2.0, calls_per_second=80.0, wait_seconds=10.0)
    ours = asyncio.run(_on_stack(plan))
    peer = asyncio.run(_journal(replace(plan, memory=JOURNAL)))
    note = ""
    if not ours.sustained:
        note = f"{plan.calls_per_second:,.0f} calls/s are not sustained here: what is waited for is a queue that grows."
    rows = (*ours.rows(f"fleetlore at {plan.calls_per_second:,.0f} calls/s"), *peer.rows(REFERENCE))
    p50, p99 = (
        Report(
            name, percentile(ours.milliseconds, share), bar, "ms", {REFERENCE: percentile(peer.milliseconds, share)},
            higher_is_better=False, reference=REFERENCE,
        )
        for name, share, bar in (("immunity", 0.50, P50_BAR_MS), ("immunity p99", 0.99, P99_BAR_MS))
    )  # fmt: skip
    return dataclasses.replace(p50, rows=rows, also=(p99,), note=note)


async def _on_stack(plan: Plan) -> Run:
    """Run on a new stack: the embedded broker finds a record more slowly in a partition with more batches."""
    with tempfile.TemporaryDirectory(prefix="immunity-") as folder:
        async with Stack(folder, trainer=False) as stack:
            plan = replace(plan, where=stack.settings.broker)
            before = cpu_by_role()
            came = await _run(plan)
            ended = time.monotonic()
            try:
                await wait_drained(stack.settings, DEFAULT_TENANT, plan.wait_seconds)
                came.drained_seconds = time.monotonic() - ended
            except StackError:
                came.drained_seconds = math.inf
            came.cpu = {role: seconds - before[role] for role, seconds in cpu_by_role().items()}
            return came


async def _journal(plan: Plan) -> Run:
    with tempfile.TemporaryDirectory(prefix="immunity-") as folder:
        where = Path(folder) / "journal.db"
        # Once, by one process: while another has the file open, the change is refused at once.
        with closing(sqlite3.connect(where)) as file:
            file.execute("PRAGMA journal_mode=WAL")
        return await _run(replace(plan, where=str(where)))


async def _run(plan: Plan) -> Run:
    """Let the processes of a plan work side by side, from the same moment on."""
    hosts = []
    try:
        for number in range(plan.processes):
            said = msgspec.json.encode(replace(plan, number=number)).decode()
            hosts.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "benchmarks.immunity_memories", said),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    cwd=ROOT,
                    limit=LINE_BYTES,
                )
            )
        for host in hosts:
            assert host.stdout is not None
            if await host.stdout.readline() != b"ready\n":
                raise StackError(f"a process of agents did not start; it ended with exit code {await host.wait()}")
        start = f"{time.time() + 0.5}\n".encode()
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write(start)
        results = []
        for host in hosts:
            assert host.stdout is not None
            line = await host.stdout.readline()
            if not line:
                raise StackError(f"a process of agents ended with exit code {await host.wait()}")
            results.append(msgspec.json.decode(line, type=Result))
            await host.wait()
    finally:
        for host in hosts:
            if host.returncode is None:
                host.kill()
    return Run(plan, results)


def percentile(values: list[float], share: float) -> float:
    """By nearest rank; infinity without values."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.inf
