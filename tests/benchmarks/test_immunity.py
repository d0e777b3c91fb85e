"""How late the agents know of a new failure is counted right, and what a store sustains."""

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from benchmarks.immunity import PLAN, Run, percentile
from benchmarks.immunity_load import CALLS, Call, Host, Result

SMALL = replace(
    PLAN, agents=20, processes=1, calls_per_second=160.0, seconds=0.6, warm_up_seconds=0.2, wait_seconds=0.3
)


class Notebook:
    """A memory that knows at once, or never."""

    def __init__(self, learns: bool) -> None:
        self._learns = learns
        self._known: set[str] = set()
        self.calls: list[Call] = []

    async def start(self) -> None:
        return None

    @asynccontextmanager
    async def session(self, agent: str, number: int) -> AsyncIterator["Notebook"]:
        yield self

    def knows(self, call: Call) -> bool:
        return call.error in self._known

    async def perform(self, call: Call) -> None:
        self.calls.append(call)
        if self._learns:
            self._known.add(call.error)

    async def stop(self) -> tuple[int, int]:
        return len(self.calls), 0


async def test_new_failures_are_met_and_learned_or_infinitely_late() -> None:
    for learns in (True, False):
        memory = Notebook(learns)
        host = Host(SMALL, memory)
        await host.work(time.time())
        result = host.result
        assert set(result.met) == set(range(SMALL.novelties)) and len(memory.calls) == result.sessions * CALLS
        if learns:
            assert all(result.learned[number] >= at for number, at in result.met.items())
        else:
            assert not result.learned and Run(SMALL, [result]).milliseconds == [math.inf] * SMALL.novelties


def test_what_is_sustained_and_percentiles_are_by_nearest_rank() -> None:
    plan = replace(PLAN, calls_per_second=2_000.0, seconds=10.0)
    for calls, lost, drained, sustained in (
        (20_000, 0, 0.5, True),
        (20_000, 1, 0.5, False),
        (15_000, 0, 0.5, False),
        (20_000, 0, 9.0, False),
        (20_000, 0, None, True),
    ):
        assert Run(plan, [Result(asks=calls, lost=lost)], drained).sustained is sustained, (calls, lost, drained)
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.50), percentile(values, 0.99), percentile([], 0.5)) == (50.0, 99.0, math.inf)
