"""Feed the whole embedded stack for a minute: `python -m benchmarks.stack` shows its rate and its CPU by role.

Broker, Milvus Lite, one worker and the trainer run as `fleetlore up` starts them. A feeder sends the logged runs again
and again through the agents' own emitter, as fast as they are processed. The rate is the number of events over the time
from the first event until every stage has committed the results of the last one. So a stage that falls behind lowers
the rate.

Each second the run reads the trainer's CPU and the end of the newest session that it has learned. The bars are .30 of a
core in any 10 s and 20 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from rich.console import Console

from benchmarks import peers
from benchmarks.cpu import cores, cpu_by_role
from benchmarks.report import Report, Row, shown
from benchmarks.traffic import TENANT
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained

SECONDS = 60.0
QUICK_SECONDS = 2.0
DRAIN_SECONDS = 300.0
BAR = 20_000.0
UNIT = "events/s"
FLEET_EVENTS = 10_000
TRAINER_SECONDS = 10
NEWEST = re.compile(rb"^fleetlore_trainer_newest_session_timestamp_seconds\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TrainerWatch:
    """The trainer under load, looked at each second.

    Attributes:
        cpu: its CPU seconds so far, by monotonic time.
        ages: seconds since the newest session ended that it had learned, from its first version on.
    """

    url: str
    cpu: list[tuple[float, float]] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            self.cpu.append((time.monotonic(), cpu_by_role()["trainer"]))
            page = await asyncio.to_thread(_page, f"{self.url}/metrics")
            if newest := NEWEST.search(page):
                self.ages.append(time.time() - float(newest[1]))
            await asyncio.sleep(1)

    def rows(self) -> list[Row]:
        pairs = [
            (late[0] - early[0], late[1] - early[1])
            for early, late in zip(self.cpu, self.cpu[TRAINER_SECONDS:], strict=False)
        ]
        share = max((spent / seconds for seconds, spent in pairs), default=0.0)
        return [
            Row(name="trainer, in any 10 s", figure=share, unit="of a core", note="bar ≤ .30"),
            Row(
                name="newest session that the trainer has learned, at worst",
                figure=max(self.ages, default=float("nan")),
                unit="s old",
                note=f"bar ≤ 20; {len(self.ages)} looks while events were sent",
            ),
        ]


@dataclass(frozen=True, slots=True)
class Sustained:
    """One minute of it.

    Attributes:
        seconds: from the first event until the last was worked in.
        cpu: seconds by role.
    """

    events: float
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    def rows(self, name: str) -> list[Row]:
        busy = sum(self.cpu.values())
        note = f"{self.events:,.0f} events in {self.seconds:.0f} s; {busy / self.seconds:.2f} of {cores()} cores busy"
        return [
            Row(name=name, figure=self.rate, unit=UNIT, note=note),
            *(
                Row(name=f"  {role}", figure=spent / self.events * 1e6, unit="µs of CPU per event")
                for role, spent in sorted(self.cpu.items(), key=lambda each: -each[1])
            ),
        ]

    def of_the_machine(self) -> list[Row]:
        """What a fleet needs of cores, and how much of them was used; the bars are in the notes."""
        busy = sum(self.cpu.values())
        return [
            Row(
                name=f"cores for {FLEET_EVENTS:,} agents at an event a second each",
                figure=busy / self.events * FLEET_EVENTS,
                unit="cores",
                note="bar ≤ 1.5; emitters and trainer included",
            ),
            Row(name="busy", figure=busy / self.seconds / cores(), unit="of the cores", note="bar ≥ .9"),
        ]


def run(quick: bool) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    ours, trainer = asyncio.run(_sustained(seconds))
    role, spent = max(ours.cpu.items(), key=lambda each: each[1])
    return Report(
        name="stack",
        figure=ours.rate,
        bar=BAR,
        unit=UNIT,
        peers={},
        rows=(*ours.rows("fleetlore: all roles"), *ours.of_the_machine(), *trainer.rows()),
        note=f"bound by the {role}: {shown(spent / ours.seconds)} of a core",
    )


async def _sustained(seconds: float) -> tuple[Sustained, TrainerWatch]:
    with tempfile.TemporaryDirectory(prefix="fleetlore-bench-") as folder:
        async with Stack(folder, tenants=(TENANT,)) as stack:
            # Wait for the trainer: its imports take seconds of CPU, and the figures are per event.
            await answers(f"{stack.metrics['trainer']}/livez")
            settings, trainer = stack.settings, TrainerWatch(stack.metrics["trainer"])
            before = cpu_by_role()
            watching = asyncio.create_task(trainer.run())
            fed = await asyncio.to_thread(peers.run, "benchmarks.feeder", settings.broker, settings.group, seconds)
            watching.cancel()
            await wait_drained(settings, TENANT, DRAIN_SECONDS)
            took = time.time() - fed["started"]
            after = cpu_by_role()
            cpu = {role: after[role] - before[role] for role in after} | {"emitter": fed["cpu_seconds"]}
            return Sustained(fed["events"], took, cpu), trainer


async def answers(url: str) -> None:
    """Wait until the page is there, for a minute at most."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(_page, url):
            await asyncio.sleep(0.2)


def _page(url: str) -> bytes:
    """The page, or empty bytes if it is not there."""
    with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=2) as response:
        return bytes(response.read())
    return b""


if __name__ == "__main__":
    report = run(quick="--quick" in sys.argv)
    Console(width=160).print(report.headline(), report.table())
