"""Time what fleetlore costs an agent in a step: advice before a call, and the two events of the call.

64 agents in one process do the calls of real runs, tools that answer at once, in a fleet that knows 10,000 failure
patterns, against an embedded broker: `session.advise`, `session.action` entered and left. The figure is the CPU (user
and system) of the process divided by its steps. So it includes the background (masking, records, requests,
acknowledgements) and the loop that drives the agents. The agent's own part, without the background, is timed step by
step by the thread's CPU clock; what that clock costs itself is taken off. A lone agent that makes 20 calls a second
pays for a request for each; it has a separate row. So has a fleet at rest, which follows the lore all the time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from statistics import median

from benchmarks.advice import Call, asked, learned, percentile
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.traffic import PARTITIONS, TENANT
from fleetlore import Fleet, Session
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from sinks.topics import ensure_topics

AGENTS = 64
STEPS = 20_000
QUICK_STEPS = 500
LONE_STEPS = 200
LONE_PAUSE_SECONDS = 0.05
BAR_MICROSECONDS = 70.0
UNIT = "µs of CPU per step"


def run(quick: bool) -> Report:
    steps = QUICK_STEPS if quick else STEPS
    source, calls = asked(steps)
    with EmbeddedBroker() as broker:
        asyncio.run(ensure_topics(Settings(broker=broker.address, tenants=(TENANT,), partitions=PARTITIONS)))
        together, own = asyncio.run(_steps(broker.address, calls))
        lone_calls = calls[: LONE_STEPS // (10 if quick else 1)]
        lone, lone_own = asyncio.run(_steps(broker.address, lone_calls, 1, LONE_PAUSE_SECONDS))
        rest = asyncio.run(_rest(broker.address, len(lone_calls) * LONE_PAUSE_SECONDS))
    rows = (
        Row("a step, all of the process", together, UNIT, note=f"{len(calls):,} calls of {source}"),
        Row("  the agent's own part", median(own), "µs of CPU, p50"),
        Row("  the same", percentile(own, 99), "µs of CPU, p99"),
        Row(
            "a lone agent, 20 steps a second",
            lone - rest * LONE_PAUSE_SECONDS,
            UNIT,
            note="a request for each step; what a fleet at rest takes is taken off",
        ),
        Row("  its own part", median(lone_own), "µs of CPU, p50"),
        Row("a fleet at rest", rest, "µs of CPU per second", note="follows the lore"),
    )
    return Report("step", together, BAR_MICROSECONDS, UNIT, higher_is_better=False, rows=rows)


async def _steps(
    broker: str, calls: list[Call], agents: int = AGENTS, pause_seconds: float = 0.0
) -> tuple[float, list[float]]:
    """Microseconds of CPU: of the process per step, and of the agents' own part of each."""
    own: list[float] = []
    async with Fleet("agent", broker=broker, tenant=TENANT, max_buffered_events=len(calls) * 2 + 10 * agents) as fleet:
        await fleet.ready(10)
        fleet.replica.index, _ = learned(calls)
        # Objects made for the measurement are no garbage of the agent.
        gc.collect()
        gc.freeze()
        started = time.process_time()
        await asyncio.gather(*(_agent(fleet, calls[n::agents], pause_seconds, own) for n in range(agents)))
        if not await fleet.flush(60) or fleet.dropped:
            raise BrokerUnavailable(f"{fleet.dropped} events dropped, {fleet.emitter.waiting} not taken in time")
        used = time.process_time() - started
    gc.unfreeze()
    return used / len(calls) * 1e6, own


async def _rest(broker: str, seconds: float) -> float:
    """Microseconds of CPU that a process with a fleet takes in a second in which it does nothing."""
    async with Fleet("agent", broker=broker, tenant=TENANT) as fleet:
        await fleet.ready(10)
        started = time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - started) / seconds * 1e6


async def _agent(fleet: Fleet, calls: list[Call], pause_seconds: float, own: list[float]) -> None:
    async with fleet.session("answer the question", task="benchmark") as session:
        for tool, arguments in calls:
            own.append(await _step(session, tool, arguments))
            await asyncio.sleep(pause_seconds)
        session.succeed()


async def _step(session: Session, tool: str, arguments: object) -> float:
    clock = time.thread_time_ns
    first = clock()
    started = clock()
    session.advise(tool, arguments)
    async with session.action(tool, arguments) as action:
        action.result = "42 rows"
    return (clock() - started - (started - first)) / 1000
