"""Feed the whole embedded stack for a minute: `python -m benchmarks.stack` shows its rate and its CPU by role.

Broker, Milvus Lite, one worker and the trainer run as `fleetlore up` starts them. A feeder sends the logged runs again
and again through the agents' own emitter, as fast as they are processed. The rate is the number of events over the time
from the first event until every stage has committed the results of the last one. So a stage that falls behind lowers
the rate.

Each second the run reads the trainer's CPU and the end of the newest session that it has learned. The bars are .30 of a
core in any 10 s and 20 s.

In the same run, the same broker and Milvus Lite are fed the same way with `benchmarks/peers/by_hand.py` in the place of
the worker. That script has no trainer beside it, and does less: its docstring says what it leaves out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import peers
from benchmarks.cpu import cores, cpu_by_role
from benchmarks.report import Report, Row, shown
from benchmarks.traffic import TENANT, TOPIC
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained

SECONDS = 60.0
QUICK_SECONDS = 2.0
DRAIN_SECONDS = 300.0
BAR = 20_000.0
UNIT = "events/s"
FLEET_EVENTS = 10_000
BY_HAND_GROUP = "by-hand"
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
            Row("trainer, in any 10 s", share, "of a core", note="bar ≤ .30"),
            Row(
                "newest session that the trainer has learned, at worst",
                max(self.ages, default=float("nan")),
                "s old",
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
            Row(name, self.rate, UNIT, note=note),
            *(
                Row(f"  {role}", spent / self.events * 1e6, "µs of CPU per event")
                for role, spent in sorted(self.cpu.items(), key=lambda each: -each[1])
            ),
        ]

    def of_the_machine(self) -> list[Row]:
        """What a fleet needs of cores, and how much of them was used; the bars are in the notes."""
        busy = sum(self.cpu.values())
        return [
            Row(
                f"cores for {FLEET_EVENTS:,} agents at an event a second each",
                busy / self.events * FLEET_EVENTS,
                "cores",
                note="bar ≤ 1.5; emitters and trainer included",
            ),
            Row("busy", busy / self.seconds / cores(), "of the cores", note="bar ≥ .9"),
        ]


def run(quick: bool) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    ours, trainer = asyncio.run(_fleetlore(seconds))
    theirs = asyncio.run(_by_hand(seconds))
    role, spent = max(ours.cpu.items(), key=lambda each: each[1])
    rows = (
        *ours.rows("fleetlore: all roles"),
        *ours.of_the_machine(),
        *trainer.rows(),
        *theirs.rows("by hand: broker, Milvus Lite, one script"),
    )
    note = f"bound by the {role}: {shown(spent / ours.seconds)} of a core"
    return Report("stack", ours.rate, BAR, UNIT, {"by hand": theirs.rate}, reference="by hand", rows=rows, note=note)


async def _fleetlore(seconds: float) -> tuple[Sustained, TrainerWatch]:
    async with _stack(workers=1, trainer=True) as stack:
        # Wait for the trainer: its imports take seconds of CPU, and the figures are per event.
        await answers(f"{stack.metrics['trainer']}/livez")
        drained = partial(wait_drained, stack.settings, TENANT, DRAIN_SECONDS)
        watch = TrainerWatch(stack.metrics["trainer"])
        return await _sustain(stack.settings, stack.settings.group, seconds, drained, watch), watch


async def _by_hand(seconds: float) -> Sustained:
    async with _stack(workers=0, trainer=False) as stack:
        settings = stack.settings
        script = Path(peers.__file__).parent / "by_hand.py"
        with tempfile.TemporaryFile() as log:
            # Behind the guard, so that it does not outlive this process.
            python = sys.executable
            process = subprocess.Popen(
                [python, "-m", "streams.embedded.supervisor", python, str(script), settings.broker, settings.milvus],
                cwd=peers.ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
            try:
                return await _sustain(
                    settings, BY_HAND_GROUP, seconds, partial(_committed, settings.broker, BY_HAND_GROUP)
                )
            except (TimeoutError, StackError):
                log.seek(0)
                raise StackError(f"by_hand.py did not do it: {log.read()[-1000:].decode(errors='replace')}") from None
            finally:
                process.terminate()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()


@contextlib.asynccontextmanager
async def _stack(workers: int, trainer: bool) -> AsyncIterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="fleetlore-bench-") as folder:
        async with Stack(folder, tenants=(TENANT,), workers=workers, trainer=trainer) as stack:
            yield stack


async def _sustain(
    settings: Settings,
    group: str,
    seconds: float,
    drained: Callable[[], Awaitable[None]],
    trainer: TrainerWatch | None = None,
) -> Sustained:
    before = cpu_by_role()
    watching = asyncio.create_task(trainer.run()) if trainer is not None else None
    fed = await asyncio.to_thread(peers.run, "benchmarks.feeder", settings.broker, group, seconds)
    if watching is not None:
        watching.cancel()
    await drained()
    took = time.time() - fed["started"]
    after = cpu_by_role()
    cpu = {role: after[role] - before[role] for role in after} | {"emitter": fed["cpu_seconds"]}
    return Sustained(fed["events"], took, cpu)


async def _committed(broker: str, group: str) -> None:
    async with asyncio.timeout(DRAIN_SECONDS), observer(broker, group) as consumer:
        while True:
            ends = await end_offsets(consumer, await partitions_of(consumer, TOPIC))
            if all([(await consumer.committed(partition) or 0) >= end for partition, end in ends.items()]):
                return
            await asyncio.sleep(0.1)


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
