"""Run one evaluation: the fleet's past, then the same sessions for every arm, over seeds and shuffled orders.

For each seed there is a world, and a past: `history` sessions of the log-only agent on half of the tasks. Every arm
learns from this one past, so all have seen the same log. Then, for each order, each arm goes its own way over the
`measured` sessions: the same tasks in the same order, the same agents, the same luck; it goes on learning from its own
sessions. In a world that drifts, the rules change in the middle. Half of the measured tasks were never met before:
`transfer_success` is theirs.

How many updates forgetting is measured over is stated in benchmarks.evaluate.forgetting; it needs no orders and is
measured on the first `forgetting_seeds` seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.evaluate.arms.agent import attend
from benchmarks.evaluate.arms.memory import LogOnly, Memory
from benchmarks.evaluate.arms.oracle import REFERENCES, Minds, mind_of
from benchmarks.evaluate.figures import figures
from benchmarks.evaluate.forgetting import (
    BATCH,
    NEW_UPDATES,
    OLD_UPDATES,
    PROBED_SESSIONS,
    Forgetting,
    Probe,
    foresight,
)
from benchmarks.evaluate.past import contents
from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.world import Task, World

Progress = Callable[[str], None]
# Fresh memories by name; the second argument is the time between two sessions, by which the trainer batches.
Arms = Callable[[Sequence[str]], Mapping[str, Memory]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is done. The defaults are the full run of the long tasks."""

    arms: tuple[str, ...]
    seeds: tuple[int, ...] = tuple(range(5))
    orders: int = 3
    history: int = 160
    measured: int = 16
    agents: int = 6
    forgetting_seeds: int = 2
    old_updates: int = OLD_UPDATES
    new_updates: int = NEW_UPDATES
    probed: int = PROBED_SESSIONS


@dataclass(slots=True)
class Results:
    """What came out.

    Attributes:
        runs: figures by arm, seed and order.
        forgetting: by arm, one a seed.
        curves: by arm, of each run the sessions in order: succeeded, errors.
        pasts: of each seed, what its past holds (benchmarks.evaluate.past).
        references: figures by reference (benchmarks.evaluate.arms.oracle), seed and order.
    """

    runs: dict[str, dict[int, list[dict[str, float]]]]
    forgetting: dict[str, list[Forgetting]]
    curves: dict[str, list[list[tuple[bool, int]]]] = field(default_factory=dict)
    pasts: list[dict[str, float]] = field(default_factory=list)
    references: dict[str, dict[int, list[dict[str, float]]]] = field(default_factory=dict)


async def evaluate(world_of: Callable[[int], World], plan: Plan, arms: Arms, progress: Progress) -> Results:
    """Run the whole plan.

    Args:
        world_of: the world of a seed.
    """
    results = Results({name: {} for name in plan.arms}, {name: [] for name in plan.arms})
    for place, seed in enumerate(plan.seeds):
        world = world_of(seed)
        past = await history(world, seed, plan)
        tasks = [task.id for order in range(plan.orders) for task in shuffled(world.tasks, seed, order, plan.measured)]
        results.pasts.append(contents(past, tasks))
        taught = arms(plan.arms)
        for name in plan.arms:
            for session in past:
                await taught[name].learn(session)
            progress(f"seed {seed}: {name} has learned {len(past)} sessions")
        for name in REFERENCES:
            lives = [await follow(world, seed, order, plan, LogOnly(), mind_of(name)) for order in range(plan.orders)]
            results.references.setdefault(name, {})[seed] = [_figures(lived, world) for lived in lives]
        for name in plan.arms:
            results.runs[name][seed] = []
            for order in range(plan.orders):
                lived = await follow(world, seed, order, plan, await taught[name].twin())
                found = _figures(lived, world)
                results.runs[name][seed].append(found)
                results.curves.setdefault(name, []).append([(each.succeeded, len(each.errors)) for each in lived])
                progress(
                    f"seed {seed}, order {order}: {name} succeeds in {found['success']:.0%}, "
                    f"{found['steps']:.2f} x steps"
                )
        if place < plan.forgetting_seeds:
            measured = await forgetting(world, seed, plan, arms(plan.arms), progress)
            for name, each in measured.items():
                results.forgetting[name].append(each)
    return results


async def history(world: World, seed: int, plan: Plan) -> list[Recorded]:
    """The past of a fleet without a memory: only every other task of the world has been met."""
    rng = Random(f"history/{seed}")
    met = world.tasks[::2]
    return [
        await _session(world, rng.choice(met), f"past-{seed}-{number}", number, 0, plan, LogOnly())
        for number in range(plan.history)
    ]


async def follow(
    world: World, seed: int, order: int, plan: Plan, memory: Memory, mind: Minds | None = None
) -> list[Recorded]:
    """The measured sessions of one arm, or of a reference, which has a mind of its own."""
    tasks = shuffled(world.tasks, seed, order, plan.measured)
    lived = []
    for number, task in enumerate(tasks):
        epoch = world.epochs - 1 if number >= plan.measured // 2 else 0
        session = f"{seed}-{order}-{number}"
        lived.append(await _session(world, task, session, plan.history + number, epoch, plan, memory, mind))
    return lived


def shuffled(tasks: Sequence[Task], seed: int, order: int, count: int) -> list[Task]:
    """`count` tasks: all of them in another order for each order, again and again if there are fewer."""
    rng = Random(f"order/{seed}/{order}")
    chosen: list[Task] = []
    while len(chosen) < count:
        chosen += rng.sample(list(tasks), len(tasks))
    return chosen[:count]


async def forgetting(
    world: World, seed: int, plan: Plan, memories: Mapping[str, Memory], progress: Progress
) -> dict[str, Forgetting]:
    """Of every arm: see benchmarks.evaluate.forgetting."""
    old_world, new_world = world.parts()
    old = await _stream(old_world, f"old-{seed}", plan, plan.old_updates * BATCH)
    new = await _stream(new_world, f"new-{seed}", plan, plan.new_updates * BATCH)
    old_probes = await _probes(old_world, f"old-probe-{seed}", plan)
    new_probes = await _probes(new_world, f"new-probe-{seed}", plan)
    seen: dict[str, list[float]] = {name: [] for name in memories}
    for stage, sessions in (("old", old), ("new", new)):
        # Arms may share parts, so all of them learn before any is asked.
        for name, memory in memories.items():
            for session in sessions:
                await memory.learn(session)
            progress(f"seed {seed}: {name} has learned {len(sessions)} sessions of {stage} domains")
        for name, memory in memories.items():
            seen[name] += [await foresight(memory, old_probes), await foresight(memory, new_probes)]
    return {
        name: Forgetting(old_before=a, new_before=b, old_after=c, new_after=d) for name, (a, b, c, d) in seen.items()
    }


async def _stream(world: World, name: str, plan: Plan, count: int) -> list[Recorded]:
    rng = Random(f"stream/{name}")
    return [
        await _session(world, rng.choice(list(world.tasks)), f"{name}-{number}", number, 0, plan, LogOnly())
        for number in range(count)
    ]


async def _probes(world: World, name: str, plan: Plan) -> list[Probe]:
    tasks = {task.id: task for task in world.tasks}
    return [
        Probe.of(session, world.open(tasks[session.task], session.id, 0))
        for session in await _stream(world, name, plan, plan.probed)
    ]


async def _session(
    world: World,
    task: Task,
    session: str,
    number: int,
    epoch: int,
    plan: Plan,
    memory: Memory,
    mind: Minds | None = None,
) -> Recorded:
    agent = f"agent-{number % plan.agents}"
    environment = world.open(task, session, epoch)
    decides = None if mind is None else mind(agent, session, environment)
    return await attend(agent, task, environment, memory, session=session, luck=session, number=number, mind=decides)


def _figures(lived: Sequence[Recorded], world: World) -> dict[str, float]:
    unmet = {task.id for task in world.tasks[1::2]}
    new = [session for session in lived if session.task in unmet]
    return figures(lived) | {"transfer_success": figures(new)["success"] if new else float("nan")}
