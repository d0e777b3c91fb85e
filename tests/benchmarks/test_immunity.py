from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.immunity import PLAN, Run, percentile
from benchmarks.immunity_load import CALLS, Call, Host, Plan, Result, known_call, new_call
from benchmarks.immunity_memories import JournalMemory

SMALL = replace(
    PLAN, agents=20, processes=1, calls_per_second=160.0, seconds=0.6, warm_up_seconds=0.2, wait_seconds=0.3
)


class Notebook:
    """A memory that knows at once, or never."""

    def __init__(self, *, learns: bool = True) -> None:
        self._learns = learns
        self._known: set[str] = set()
        self.calls: list[Call] = []
        self.ended = 0

    async def start(self) -> None:
        return None

    @asynccontextmanager
    async def session(self, agent: str, number: int) -> AsyncIterator[Notebook]:
        yield self
        self.ended += 1

    def knows(self, call: Call) -> bool:
        return call.error in self._known

    async def perform(self, call: Call) -> None:
        self.calls.append(call)
        if self._learns:
            self._known.add(call.error)

    async def stop(self) -> tuple[int, int]:
        return len(self.calls) + 2 * self.ended, 0


async def work(plan: Plan, memory: Notebook) -> Result:
    host = Host(plan, memory)
    await host.work(time.time())
    return host.result


async def test_the_agents_keep_to_the_rate_and_new_failures_are_met_and_learned() -> None:
    memory = Notebook()
    result = await work(SMALL, memory)
    assert set(result.met) == set(result.learned) == set(range(SMALL.novelties))
    assert all(result.learned[number] >= at for number, at in result.met.items())
    assert len(memory.calls) == result.sessions * CALLS
    # Sessions begin all over a session's time, and each that has begun is finished.
    assert 0.9 * 160 * 0.6 <= result.sessions * CALLS <= 1.5 * 160 * 0.6 + 20 * CALLS


async def test_a_failure_that_nobody_learns_of_is_infinitely_late() -> None:
    result = await work(SMALL, Notebook(learns=False))
    assert len(result.met) == SMALL.novelties
    assert not result.learned
    assert Run(SMALL, [result]).milliseconds == [math.inf] * SMALL.novelties


def test_a_new_failure_is_like_no_other() -> None:
    patterns = {new_call(run, number).failure.exact for run in (1, 2) for number in range(50)}
    assert len(patterns) == 100


def test_a_tenth_of_the_known_kinds_fails() -> None:
    assert sum(bool(known_call(kind, Random(kind)).error) for kind in range(200)) == 20


@pytest.mark.parametrize(
    ("calls", "lost", "drained", "sustained"),
    [
        (20_000, 0, 0.5, True),
        (20_000, 1, 0.5, False),
        (15_000, 0, 0.5, False),
        (20_000, 0, 9.0, False),
        (20_000, 0, None, True),
    ],
)
def test_what_is_sustained(calls: int, lost: int, drained: float | None, sustained: bool) -> None:
    plan = replace(PLAN, calls_per_second=2_000.0, seconds=10.0)
    assert Run(plan, [Result(asks=calls, lost=lost)], drained).sustained is sustained


def test_percentiles_are_by_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.50), percentile(values, 0.99)) == (50.0, 99.0)
    assert percentile([], 0.5) == math.inf


async def test_a_journal_tells_another_process_at_its_next_poll(tmp_path: Path) -> None:
    writer, reader = (JournalMemory(tmp_path / "journal.db", poll_seconds=0.02) for _ in range(2))
    await writer.start()
    await reader.start()
    call = new_call(1, 1)
    async with writer.session("a", 0) as author, reader.session("b", 0) as other:
        assert not other.knows(call)
        await author.perform(call)
        async with asyncio.timeout(120):
            while not other.knows(call):
                await asyncio.sleep(0.01)
    assert await writer.stop() == (3, 0)
    await reader.stop()
