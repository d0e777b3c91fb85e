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
    """A choice. `failed`, `solves` and `risks` are by candidate; a risk is None where the call model cannot tell.

    Attributes:
        advice: what an agent hears; empty where it hears nothing.
        quoted: the calls that the advice is about, without a word about them.
        placebo: the advice of another task at equal length; empty where there is none.
    """

    task: str
    goal: str
    tool: str
    candidates: tuple[str, ...]
    failed: tuple[bool, ...]
    solves: tuple[bool, ...]
    risks: tuple[float | None, ...]
    advice: str
    quoted: str
    placebo: str


async def states(world: LoggedWorld, most: int, seed: int = 0) -> list[State]:
    """At most so many states at new tasks, after the fleet has met the others."""
    stage = stages_by_task(world, seed, 0)[0]
    drawn = [task for id in _by_hash({each.task for each in stage.measured["new_tasks"]}) if (task := _cut(world, id))]
    fleet = Fleet(lore=True)
    arm = Told(fleet, "both", learns=True)
    await arm.learn(stage.past)
    return with_placebos([_state(task, arm) for task in drawn[:most]])


def with_placebos(found: list[State]) -> list[State]:
    """Give each state that has advice that of the next one that has, cut or repeated to the length of its own."""
    advised = [each for each in found if each.advice]
    following = dict(zip([each.task for each in advised], [*advised[1:], *advised[:1]], strict=True))
    return [
        each._replace(placebo=_as_long(following[each.task].advice, len(each.advice)))
        if each.advice and following[each.task].task != each.task
        else each
        for each in found
    ]


def _as_long(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


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
    about = [texts[note.about] for note in recall.notes if note.about is not None]
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
        "\n".join(f"Before {text}:" for text in about)[:MAX_ADVICE],
        "",
    )


def _by_hash(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (stable_hash(f"state/{name}"), name))
