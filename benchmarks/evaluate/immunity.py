"""Measure fleet immunity: how often agents run into failures that somebody has met before, as a fleet and each on its
own.

The agents, habits and tool world of `make demo`, and the same sessions in both arms: once every agent has a
journal of its own, once all share a fleet's lore. Which task a session has follows Zipf's law, so a few failure classes
are met by nearly all agents and most by few. `SHARE_AT_WORK` of the agents are at work at the same time: what one of
them meets, the others know only when its session has ended. (How fast lore travels while sessions run is measured on
the real stack: `python -m benchmarks immunity`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.demo.advisers import FleetAdviser, Journal
from benchmarks.demo.agents import Run, attend, repeated
from benchmarks.demo.world import Task, World
from fleetlore.wire.events import Event
from streams.offline.memory_pipeline import MemoryPipeline

SESSIONS = 3
SHARE_AT_WORK = 0.05
ZIPF = 1.1
BAR = 0.70


@dataclass(frozen=True, slots=True)
class Immunity:
    """Of one fleet size and seed.

    Attributes:
        isolated, fleet: failures by a rule that some agent of the same arm had broken before.
        isolated_success, fleet_success: share of sessions whose goal was reached.
    """

    agents: int
    seed: int
    isolated: int
    fleet: int
    isolated_success: float
    fleet_success: float

    @property
    def fewer(self) -> float:
        """Share of the repeats that the fleet was spared."""
        return 1 - self.fleet / self.isolated if self.isolated else 0.0


async def immunity(agents: int, seed: int, progress: Callable[[str], None]) -> Immunity:
    """Both arms."""
    world = World(seed)
    journals: dict[str, Journal] = {}
    alone: list[Run] = []
    for agent, task, name in work(world, agents, seed):
        journal = journals.setdefault(agent, Journal())
        alone.append(await attend(agent, world.open(task, name), journal))
    progress(f"seed {seed}: {agents} isolated agents")
    together = await _as_fleet(world, agents, seed)
    progress(f"seed {seed}: {agents} agents as a fleet")
    return Immunity(
        agents,
        seed,
        *(repeated(fault for run in runs for fault in run.faults) for runs in (alone, together)),
        *(sum(run.succeeded for run in runs) / len(runs) for runs in (alone, together)),
    )


def work(world: World, agents: int, seed: int) -> Iterator[tuple[str, Task, str]]:
    """(agent, task, name) of every session, in the order in which they begin."""
    rng = Random(f"immunity/{seed}/{agents}")
    tasks = rng.sample(list(world.tasks), len(world.tasks))
    weights = [1 / rank**ZIPF for rank in range(1, len(tasks) + 1)]
    for number in range(SESSIONS):
        for agent in rng.sample(range(agents), agents):
            yield f"agent-{agent}", rng.choices(tasks, weights)[0], f"{agent}/{number}"


async def _as_fleet(world: World, agents: int, seed: int) -> list[Run]:
    fleet = MemoryPipeline()
    at_work = max(1, round(SHARE_AT_WORK * agents))
    runs: list[Run] = []
    waiting: list[Event] = []
    for number, (agent, task, name) in enumerate(work(world, agents, seed), 1):
        environment = world.open(task, name)
        emitted: list[Event] = []
        async with fleet.session(agent, environment.goal, task.id, name, emitted) as session:
            run = await attend(agent, environment, FleetAdviser(session))
            if run.succeeded:
                session.succeed(reward=1.0)
            else:
                session.fail(reward=0.0)
        runs.append(run)
        waiting += emitted
        if number % at_work == 0:
            await fleet.take(waiting)
            waiting.clear()
    return runs
