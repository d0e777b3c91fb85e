"""Draw states from a world of logs: a task that is held out, some of its calls, and what an agent hears there.

A state is the beginning of a session, where the answer of each call is known. It holds calls that failed and calls that
worked, drawn by a hash. The fleet has met neither the task nor the model families that are held out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.evaluate.logged.fleet import Fleet, Told
from benchmarks.evaluate.logged.holdouts import stages_by_task
from benchmarks.evaluate.logged.world import LoggedTask, LoggedWorld
from fleetlore.stats.hashing import stable_hash

CANDIDATES = 6
MAX_CALL = 400
MAX_ADVICE = 1_600


class State(NamedTuple):
    """A choice. `failed`, `solves` and `risks` are by candidate; a risk is None where the call model cannot tell."""

    task: str
    goal: str
    tool: str
    candidates: tuple[str, ...]
    failed: tuple[bool, ...]
    solves: tuple[bool, ...]
    risks: tuple[float | None, ...]
    advice: str
    placebo: str


async def states(world: LoggedWorld, most: int, seed: int = 0) -> list[State]:
    """At most so many states at new tasks, after the fleet has met the others."""
    stage = stages_by_task(world, seed, 0)[0]
    drawn = [task for id in _by_hash({each.task for each in stage.measured["new_tasks"]}) if (task := _cut(world, id))]
    fleet = Fleet(lore=True)
    arm = Told(fleet, "both", learns=True)
    await arm.learn(stage.past)
    found = [_state(task, arm) for task in drawn[:most]]
    return [
        each._replace(placebo=placebo(each.advice, found[(place + 1) % len(found)].advice))
        for place, each in enumerate(found)
    ]


def placebo(advice: str, other: str) -> str:
    """Another task's advice, cut or repeated to the length of this one; empty where either is."""
    return (other * (len(advice) // len(other) + 1))[: len(advice)] if other else ""


def _cut(world: LoggedWorld, id: str) -> LoggedTask | None:
    """The task with some of its calls, as many that failed as that worked where there are; None without both."""
    task = world.tasks[id]
    short = [text for text in _by_hash(task.replies) if len(text) <= MAX_CALL]
    failed = [text for text in short if task.replies[text].call.failure is not None][: CANDIDATES // 2]
    worked = [text for text in short if task.replies[text].call.failure is None][: CANDIDATES // 2]
    if not failed or not worked:
        return None
    return LoggedTask(
        id, task.goal, task.tool, task.place, {text: task.replies[text] for text in _by_hash(failed + worked)}
    )


def _state(task: LoggedTask, arm: Told) -> State:
    recall = arm.recall(task)
    texts = task.proposals
    told = [note.text if note.about is None else f"Before {texts[note.about]}:\n{note.text}" for note in recall.notes]
    return State(
        task.id,
        task.goal,
        task.tool,
        tuple(texts),
        tuple(reply.call.failure is not None for reply in task.replies.values()),
        tuple(bool(each) for each in np.asarray(task.solves())),
        tuple(recall.risks),
        "\n".join(told)[:MAX_ADVICE],
        "",
    )


def _by_hash(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (stable_hash(f"state/{name}"), name))
