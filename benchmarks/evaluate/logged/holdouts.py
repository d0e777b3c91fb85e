"""Draw what the fleet has met and what is measured: a model family is held out, and tasks or whole databases with it.

All personas are agents of the family that is held out; which one that is goes round with the seed. So every figure is
of agents that the fleet has never seen, and the slices differ in what it knows of their tasks:

| slice | the fleet knows |
| --- | --- |
| `known` | other agents' sessions at the task |
| `new_tasks` | other tasks of the same databases |
| `new_databases` | other databases |
| `after_5`, `after_20`, `after_60` | that, and so many sessions at other tasks of the database |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from benchmarks.evaluate.logged.world import LoggedWorld, family
from fleetlore.errors import ConfigError
from fleetlore.stats.hashing import stable_hash
from fleetlore.transcripts.session import LoggedSession

TASKS = 0.2
DATABASES = 0.25
AFTER = (5, 20, 60)
KNOWN_TASKS = 60


class Measured(NamedTuple):
    """A persona at a task."""

    task: str
    agent: str


class Stage(NamedTuple):
    """What the fleet meets next, in order, and what is measured once it has, by slice."""

    past: list[LoggedSession]
    measured: dict[str, list[Measured]]


def stages_by_task(world: LoggedWorld, seed: int, order: int) -> list[Stage]:
    """One stage: a share of the tasks held out."""
    held_family = _held_family(world.sessions, seed)
    tasks = _drawn(world.tasks, f"{seed}/task")
    held = set(tasks[: max(1, round(TASKS * len(tasks)))])
    past = [each for each in world.sessions if each.task not in held and family(each.agent) != held_family]
    seen = {each.place for each in past}
    new = [task for task in sorted(held) if world.tasks[task].place in seen]
    known = [task for task in tasks if task not in held][:KNOWN_TASKS]
    measured = {"new_tasks": _personas(world, new, held_family), "known": _personas(world, known, held_family)}
    return [Stage(_shuffled(past, seed, order), measured)]


def stages_by_place(world: LoggedWorld, seed: int, order: int) -> list[Stage]:
    """A share of the databases held out; then the fleet meets half of their tasks, and the other half is measured."""
    held_family = _held_family(world.sessions, seed)
    places = _drawn({task.place for task in world.tasks.values() if task.place}, f"{seed}/place")
    held = set(places[: max(1, round(DATABASES * len(places)))])
    if len(held) == len(places):
        raise ConfigError("the logs tell of too few databases to hold some out")
    others = [each for each in world.sessions if family(each.agent) != held_family]
    past = [each for each in others if each.place and each.place not in held]
    there = sorted(task for task, each in world.tasks.items() if each.place in held)
    met = {task for task in there if stable_hash(f"half/{task}") % 2 == 0}
    stages = [Stage(_shuffled(past, seed, order), {"new_databases": _personas(world, there, held_family)})]
    waiting = _shuffled([each for each in others if each.task in met], seed, order)
    at: Counter[str] = Counter()
    number: list[int] = []
    for each in waiting:
        at[each.place] += 1
        number.append(at[each.place])
    unmet = _personas(world, [task for task in there if task not in met], held_family)
    before = 0
    for count in AFTER:
        more = [each for each, place in zip(waiting, number, strict=True) if before < place <= count]
        stages.append(Stage(more, {f"after_{count}": unmet}))
        before = count
    return stages


def _held_family(sessions: Sequence[LoggedSession], seed: int) -> str:
    families = sorted({family(each.agent) for each in sessions})
    if len(families) < 2:
        raise ConfigError("the logs are of one model family: none can be held out")
    return families[seed % len(families)]


def _personas(world: LoggedWorld, tasks: Sequence[str], of: str) -> list[Measured]:
    return [Measured(task, agent) for task in tasks for agent in sorted(world.tasks[task].made) if family(agent) == of]


def _drawn(names: Iterable[str], key: str) -> list[str]:
    return sorted(names, key=lambda name: (stable_hash(f"{key}/{name}"), name))


def _shuffled(sessions: Sequence[LoggedSession], seed: int, order: int) -> list[LoggedSession]:
    chosen = sorted(sessions, key=lambda each: each.session)
    Random(f"{seed}/{order}").shuffle(chosen)
    return chosen
