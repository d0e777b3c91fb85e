"""Run the demo from start to figures."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

from benchmarks.demo.arms import FleetArm, Plan, isolated_arm
from benchmarks.demo.figures import Figures, Percentiles, Version, advice_times, compare_repeats, compare_success
from benchmarks.replay import read_knowledge
from benchmarks.tiny_model import save_tiny_model
from fleetlore.adapters.listing import AdapterListing, read_adapters
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.errors import BrokerUnavailable, StackError
from fleetlore.lora.follow import PolicyFollower
from fleetlore.wire.adapter_manifest import CALLS, LANGUAGE_MODEL
from fleetlore.wire.lore import PATTERN_LEVELS
from sinks.milvus import MilvusStore
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained

WORK_SECONDS = 240.0
DRAIN_SECONDS = 120.0
ADAPTER_SECONDS = 120.0
# Importing PyTorch and learning a version with its gate take some 15 s of CPU, which a busy machine gives late.
POLICY_SECONDS = 600.0
POLL_SECONDS = 0.25
VERSIONS_WANTED = 2

T = TypeVar("T")
# Shows the figures of a stack that still runs, with the address of its console.
Show = Callable[[Figures, str], Coroutine[Any, Any, None]]


def can_train() -> bool:
    return all(find_spec(name) is not None for name in ("torch", "peft", "transformers"))


async def run_demo(
    plan: Plan,
    data: Path,
    progress: Progress,
    console_port: int | None = None,
    show: Show | None = None,
    policy: str = "",
) -> Figures:
    """Run both arms, the second one on an embedded stack in the folder `data`.

    If torch and peft are there, the fleet then handles tickets, from which the trainer learns a policy adapter: a LoRA
    of the agents' language model, which is a tiny one with random weights unless `policy` names another.

    Args:
        console_port: the port of the console. Without it there is no console.
        show: awaited with the figures before the stack stops.

    Raises:
        StackError: the stack died, or a figure was not available in time; the text says which.
    """
    sessions = plan.agents * plan.sessions
    alone = progress.add_task("agents on their own", total=sessions)
    isolated = await isolated_arm(plan, lambda: progress.advance(alone))
    starting = progress.add_task("stack", total=1)
    began = time.time()
    if can_train() and not policy:
        policy = str(await asyncio.to_thread(save_tiny_model, data / "model"))
    stack = Stack(data, console_port=console_port, policy=policy)
    # A quarter of a core, the default, would keep the reader waiting for the last version.
    stack.settings = stack.settings.with_(trainer_cpu_share=1.0)
    async with stack:
        progress.advance(starting)
        together = progress.add_task("agents as a fleet", total=sessions)
        async with FleetArm(plan, data, lambda: progress.advance(together)) as arm:
            await _while_running(stack, _work(arm, plan))
            settling = progress.add_task("lore and adapters settle", total=plan.agents)
            await _while_running(stack, wait_drained(stack.settings, DEFAULT_TENANT, DRAIN_SECONDS))
            drained = time.time()
            settled = partial(progress.update, settling)
            versions = await _while_running(stack, _adapters(stack.settings, arm, plan, settled))
            async with MilvusStore.from_settings(stack.settings) as store:
                knowledge = await read_knowledge(store, DEFAULT_TENANT)
            runs = [run for member in arm.members for run in member.runs]
            events = sum(member.fleet.sent for member in arm.members)
            figures = Figures(
                agents=plan.agents,
                sessions=sessions,
                events=events,
                events_per_second=round(events / (drained - arm.started), 1),
                patterns=sum(knowledge.patterns[level] for level in PATTERN_LEVELS),
                judgments=len(knowledge.judgments),
                memory_items=knowledge.items.total(),
                adapter_versions=versions.published,
                agents_on_latest_adapter=plan.agents,
                call_model=versions,
                hints=arm.common_hints(),
                time_to_advice_seconds=_advice_percentiles(arm),
                time_to_first_event_seconds=round(arm.first_learned() - began, 2),
                repeat_failures=compare_repeats(isolated, runs),
                success_rate=compare_success(isolated, runs),
            )
            if policy:
                training = progress.add_task("policy training", total=1)
                async with PolicyFollower(data / "followed", data=data) as follower:
                    await _while_running(stack, arm.handle_tickets())
                    trained = await _while_running(stack, _trained(stack.settings, follower))
                progress.advance(training)
                figures = replace(figures, policy=trained)
        if show is not None:
            progress.stop()
            await _while_running(stack, show(figures, stack.console))
        return figures


async def _work(arm: FleetArm, plan: Plan) -> None:
    limit = WORK_SECONDS + plan.agents * plan.stagger_seconds
    try:
        await asyncio.wait_for(arm.work(), limit)
    except TimeoutError:
        raise StackError(f"the fleet did not finish its sessions within {limit:.0f} s") from None


async def _adapters(settings: Settings, arm: FleetArm, plan: Plan, settled: Callable[..., None]) -> Version:
    """Wait until every agent runs the newest version of the call model, and for a while until there are several.

    Raises:
        StackError: the time is up, and no version exists or some agent does not run it.
    """
    deadline = time.monotonic() + ADAPTER_SECONDS
    while True:
        version, current = await _running(settings, CALLS, [each.fleet.call_model_version for each in arm.members])
        settled(completed=current)
        # The gate asks for evidence of a gain, and so few sessions do not always hold it for a second version.
        is_late = time.monotonic() > deadline
        if version is not None and current == plan.agents and (is_late or version.published >= VERSIONS_WANTED):
            return version
        if is_late:
            raise StackError(
                f"after {ADAPTER_SECONDS:.0f} s there are {version.published if version else 0} versions of the call "
                f"model, and {current} of {plan.agents} agents run the newest"
            )
        await asyncio.sleep(POLL_SECONDS)


async def _trained(settings: Settings, follower: PolicyFollower) -> Version:
    """Wait until the server of the agents' language model has a version of the policy adapter.

    Raises:
        StackError: the time is up, and no version passed the gate or reached the server.
    """
    deadline = time.monotonic() + POLICY_SECONDS
    while True:
        version, current = await _running(settings, LANGUAGE_MODEL, [follower.version])
        if version is not None and current:
            return version
        if time.monotonic() > deadline:
            raise StackError(f"after {POLICY_SECONDS:.0f} s the policy adapter has no version that is followed")
        await asyncio.sleep(POLL_SECONDS)


async def _running(settings: Settings, adapter: str, used: list[str | None]) -> tuple[Version | None, int]:
    """Return the newest version that the channel points to, and how many of the versions in use are it."""
    try:
        listing: AdapterListing = (await read_adapters(settings.cluster, DEFAULT_TENANT)).of(adapter)
    except BrokerUnavailable:  # busy: the callers ask again until their own deadline
        return None, 0
    latest = {pointer["version"] for pointer in listing.pointers}
    found = [manifest for manifest in listing.manifests if manifest["version"] in latest]
    if not found:
        return None, 0
    newest = found[-1]
    version = Version(newest["version"], newest["ordinal"], len(listing.manifests), newest["metrics"])
    return version, sum(each in latest for each in used)


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
