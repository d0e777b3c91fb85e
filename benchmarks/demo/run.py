"""Run the demo from start to figures."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.progress import Progress

from benchmarks.demo.arms import FleetArm, Plan, isolated_arm
from benchmarks.demo.figures import Figures, Percentiles, advice_times, compare_repeats, compare_success
from fleetlore.adapters.listing import read_adapters
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.errors import StackError
from fleetlore.wire.adapter_manifest import CALLS
from fleetlore.wire.lore import PATTERN_LEVELS
from sinks.milvus import MilvusStore
from streams.embedded.stack import Stack
from streams.offline.drain import wait_drained
from streams.offline.replay import Knowledge, read_knowledge

WORK_SECONDS = 240.0
DRAIN_SECONDS = 30.0
ADAPTER_SECONDS = 30.0
POLL_SECONDS = 0.25
VERSIONS_WANTED = 2

T = TypeVar("T")


async def run_demo(plan: Plan, data: Path, progress: Progress) -> Figures:
    """Run both arms, the second one on an embedded stack in the folder `data`.

    Raises:
        StackError: the stack died, or a figure was not available in time; the text says which.
    """
    # Several torch threads would spin against the stack's processes on the same cores.
    torch.set_num_threads(1)
    sessions = plan.agents * plan.sessions
    alone = progress.add_task("agents on their own", total=sessions)
    isolated = await isolated_arm(plan, lambda: progress.advance(alone))
    starting = progress.add_task("stack", total=1)
    began = time.time()
    async with Stack(data) as stack:
        progress.advance(starting)
        together = progress.add_task("agents as a fleet", total=sessions)
        async with FleetArm(plan, data, lambda: progress.advance(together)) as arm:
            await _while_running(stack, _work(arm, plan))
            settling = progress.add_task("lore and adapters settle", total=plan.agents)
            await _while_running(stack, wait_drained(stack.settings, DEFAULT_TENANT, DRAIN_SECONDS))
            drained = time.time()

            def settled(agents: int) -> None:
                progress.update(settling, completed=agents)

            versions = await _while_running(stack, _adapters(stack.settings, arm, plan, settled))
            knowledge = await _knowledge(stack.settings)
            runs = [run for member in arm.members for run in member.runs]
            events = sum(member.fleet.sent for member in arm.members)
            return Figures(
                agents=plan.agents,
                sessions=sessions,
                events=events,
                events_per_second=round(events / (drained - arm.started), 1),
                patterns=sum(knowledge.patterns[level] for level in PATTERN_LEVELS),
                judgments=len(knowledge.judgments),
                memory_items=knowledge.items.total(),
                adapter_versions=versions,
                agents_on_latest_adapter=plan.agents,
                time_to_advice_seconds=_advice_percentiles(arm),
                time_to_first_event_seconds=round(arm.first_learned() - began, 2),
                repeat_failures=compare_repeats(isolated, runs),
                success_rate=compare_success(isolated, runs),
            )


async def _work(arm: FleetArm, plan: Plan) -> None:
    limit = WORK_SECONDS + plan.agents * plan.stagger_seconds
    try:
        await asyncio.wait_for(arm.work(), limit)
    except TimeoutError:
        raise StackError(f"the fleet did not finish its sessions within {limit:.0f} s") from None


async def _adapters(settings: Settings, arm: FleetArm, plan: Plan, settled: Callable[[int], None]) -> int:
    """Wait until every agent runs the newest version, and for a while until there are several; return how many there
    are.

    Raises:
        StackError: the time is up, and there is none or some agent does not run it.
    """
    deadline = time.monotonic() + ADAPTER_SECONDS
    while True:
        listing = (await read_adapters(settings.cluster, DEFAULT_TENANT)).of(CALLS)
        versions = len(listing.manifests)
        latest = {pointer["version"] for pointer in listing.pointers}
        current = sum(member.fleet.call_model_version in latest for member in arm.members)
        settled(current)
        if versions >= VERSIONS_WANTED and current == plan.agents:
            return versions
        if time.monotonic() > deadline:
            if versions and current == plan.agents:
                # The gate asks for evidence of a gain, and so few sessions do not always hold it.
                return versions
            raise StackError(
                f"after {ADAPTER_SECONDS:.0f} s there are {versions} adapter versions (of {VERSIONS_WANTED} wanted), "
                f"and {current} of {plan.agents} agents run the newest"
            )
        await asyncio.sleep(POLL_SECONDS)


async def _knowledge(settings: Settings) -> Knowledge:
    async with MilvusStore.from_settings(settings) as store:
        return await read_knowledge(store, DEFAULT_TENANT)


def _advice_percentiles(arm: FleetArm) -> Percentiles:
    times = advice_times(arm.first_met, arm.members)
    lost = sum(math.isinf(seconds) for seconds in times)
    if not times or lost:
        raise StackError(f"{lost} of {len(times)} times from a first failure to advice elsewhere could not be measured")
    return Percentiles.of(times)


async def _while_running(stack: Stack, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Raises the error that ended the stack, if that comes first."""
    task = asyncio.ensure_future(work)
    death = asyncio.ensure_future(stack.failed())
    try:
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise death.result()
    finally:
        task.cancel()
        death.cancel()
        await asyncio.gather(task, death, return_exceptions=True)
