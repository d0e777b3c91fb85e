"""Make sessions of a tool world that does not hold still: rules that change, and agents that lie about what happened.

For tests and benchmarks of the trainer. Deterministic, like the world itself; see :mod:`benchmarks.demo.world`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any

from benchmarks.demo.catalogue import Job
from benchmarks.demo.world import World
from benchmarks.rollouts import wander


class ChangedWorld(World):
    """The world of the same seed after the rules of some tools were turned around: what they refused they take, and the
    reverse.

    Raises ``ValueError`` for a tool that refuses nothing here, since its rules have no reverse.
    """

    def __init__(self, seed: int, tools: Collection[str], *, domains: Sequence[str] | None = None) -> None:
        super().__init__(seed, domains=domains)
        unfit = sorted(set(tools) - set(fallible(self)))
        if unfit:
            raise ValueError(f"{unfit} refuse nothing in the world {seed}")
        self._turned = frozenset(tools)

    def refuses(self, job: Job, value: object) -> bool:
        return super().refuses(job, value) != (self.tool(job.tool) in self._turned)


def fallible(world: World) -> list[str]:
    """Tools of a world that refuse some values and take others, in the order of their names."""
    return sorted(
        world.tool(job.tool)
        for jobs in world.domains.values()
        for job in jobs
        if any(World.refuses(world, job, value) for value in job.values)
    )


def sessions(world: World, count: int, *, seed: int = 0, agents: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Sessions of agents that act more or less at random, as `benchmarks.rollouts` gives them, in this
    world.
    """
    agents = agents or [f"agent-{number}" for number in range(20)]
    for number in range(count):
        rng = Random(f"disturbed/{world.seed}/{seed}/{number}")
        environment = world.open(rng.choice(world.tasks), f"{seed}/{number}")
        steps = wander(environment, rng)
        yield {
            "session": f"disturbed-{world.seed}-{seed}-{number}",
            "agent": agents[rng.randrange(len(agents))],
            "task": environment.task.id,
            "goal": environment.goal,
            "steps": steps,
            "outcome": "success" if environment.succeeded else "failure",
        }


def lie(session: dict[str, Any], tools: Collection[str]) -> dict[str, Any]:
    """The same session as an agent reports it that calls every failure of these tools a success."""
    steps = [
        {**step, "result": "done", "error_type": None, "error_message": None}
        if step["tool"] in tools and step["error_type"] is not None
        else step
        for step in session["steps"]
    ]
    return {**session, "steps": steps}
