"""Draw what the fleet has met and what is measured: a fifth of the model families, and tasks or whole groups of tasks.

All personas are agents of the families that are held out; which those are goes round with the seed. So every figure is
of agents that the fleet has never seen, and the slices differ in what it knows of their tasks. Tasks of one database
(file system, benchmark: `LoggedWorld.groups_are`) are a group:

| slice | the fleet knows |
| --- | --- |
| `known` | other agents' sessions at the task |
| `new_tasks` | other tasks of the same groups |
| `new_databases` (`new_benchmarks`) | other groups |
| `after_5`, `after_20`, `after_60` | that, and so many sessions at other tasks of the group |

Where other logs are measured, nothing is drawn (`stages_of_others`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from typing import NamedTuple

from benchmarks.evaluate.world import LoggedWorld, family
from fleetlore.errors import ConfigError
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.stats import stable_hash

FAMILIES = 0.2
TASKS = 0.2
GROUPS = 0.25
AFTER = (5, 20, 60)
KNOWN_TASKS = 60


class Measured(NamedTuple):
    task: str
    agent: str


class Stage(NamedTuple):
    """The sessions that the fleet meets next, in order, and the slices that are measured after them."""

    past: list[LoggedSession]
    measured: dict[str, list[Measured]]


def stages_by_task(world: LoggedWorld, seed: int, order: int) -> list[Stage]:
    out = _held_families(world.sessions, seed)
    tasks = _drawn(world.tasks, f"{seed}/task")
    held = set(tasks[: max(1, round(TASKS * len(tasks)))])
    past = [each for each in world.sessions if each.task not in held and family(each.agent) not in out]
    seen = {world.groups[each.task] for each in past}
    new = [task for task in sorted(held) if world.groups[task] in seen]
    known = [task for task in tasks if task not in held][:KNOWN_TASKS]
    measured = {"new_tasks": _personas(world, new, out), "known": _personas(world, known, out)}
    return [Stage(_shuffled(past, seed, order), measured)]


def stages_by_group(world: LoggedWorld, seed: int, order: int) -> list[Stage]:
    """A share of the groups held out; then the fleet meets half of their tasks, and the other half is measured."""
    out = _held_families(world.sessions, seed)
    groups = _drawn({group for task in world.tasks if (group := world.groups[task])}, f"{seed}/place")
    held = set(groups[: max(1, round(GROUPS * len(groups)))])
    if len(held) == len(groups):
        raise ConfigError(f"the logs tell of too few {world.groups_are} to hold some out")
    others = [each for each in world.sessions if family(each.agent) not in out and world.groups[each.task]]
    past = [each for each in others if world.groups[each.task] not in held]
    there = sorted(task for task in world.tasks if world.groups[task] in held)
    met = {task for task in there if stable_hash(f"half/{task}") % 2 == 0}
    stages = [Stage(_shuffled(past, seed, order), {f"new_{world.groups_are}": _personas(world, there, out)})]
    waiting = _shuffled([each for each in others if each.task in met], seed, order)
    at: Counter[str] = Counter()
    number: list[int] = []
    for each in waiting:
        at[world.groups[each.task]] += 1
        number.append(at[world.groups[each.task]])
    unmet = _personas(world, [task for task in there if task not in met], out)
    before = 0
    for count in AFTER:
        more = [each for each, place in zip(waiting, number, strict=True) if before < place <= count]
        stages.append(Stage(more, {f"after_{count}": unmet}))
        before = count
    return stages


def stages_of_others(world: LoggedWorld, others: LoggedWorld, seed: int, order: int) -> list[Stage]:
    """One stage: all of a world is the past, and the agents and tasks of other logs that are not in it are measured.

    Raises:
        ConfigError: the other logs have no such agent at such a task.
    """
    agents = {each.agent for each in world.sessions}
    tasks = {each.task for each in world.sessions}
    measured = [
        Measured(task, agent)
        for task in sorted(others.tasks.keys() - tasks)
        for agent in sorted(others.tasks[task].made.keys() - agents)
    ]
    if not measured:
        raise ConfigError("--test holds no agent and task that are both missing from --data")
    return [Stage(_shuffled(world.sessions, seed, order), {"new_tasks": measured})]


def _held_families(sessions: Sequence[LoggedSession], seed: int) -> set[str]:
    families = sorted({family(each.agent) for each in sessions})
    if len(families) < 2:
        raise ConfigError("the logs are of one model family: none can be held out")
    count = max(1, round(FAMILIES * len(families)))
    return {families[(seed * count + each) % len(families)] for each in range(count)}


def _personas(world: LoggedWorld, tasks: Sequence[str], of: AbstractSet[str]) -> list[Measured]:
    return [Measured(task, agent) for task in tasks for agent in sorted(world.tasks[task].made) if family(agent) in of]


def _drawn(names: Iterable[str], key: str) -> list[str]:
    return sorted(names, key=lambda name: (stable_hash(f"{key}/{name}"), name))


def _shuffled(sessions: Sequence[LoggedSession], seed: int, order: int) -> list[LoggedSession]:
    chosen = sorted(sessions, key=lambda each: each.session)
    Random(f"{seed}/{order}").shuffle(chosen)
    return chosen
