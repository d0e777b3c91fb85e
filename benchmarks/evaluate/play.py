"""Let personas work at their tasks with a memory: how many calls until one has the whole reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from benchmarks.evaluate.holdouts import Measured
from benchmarks.evaluate.memories import Memory
from benchmarks.evaluate.reading import LEAST, Floats, factors
from benchmarks.evaluate.recall import Recall
from benchmarks.evaluate.world import LoggedTask, luck

BUDGET = 10
RUNS = 4


class Played(NamedTuple):
    """The result of a persona at a task.

    Attributes:
        solved: share of the runs that were solved within 1, 2, … `BUDGET` calls.
        calls: made, at most `BUDGET`; the mean over the runs.
        failed: share of the runs whose first call failed.
        failed_safest: the same where it makes the proposal of the least stated chance of failure, by the draw among
            equals: how well a memory ranks, however sure it says it is. None where the memory leaves one out.
        log_loss: of the chances of failure that the memory states for all proposals; None where it leaves one out.
    """

    task: str
    agent: str
    solved: tuple[float, ...]
    calls: float
    failed: float
    failed_safest: float | None
    log_loss: float | None


async def play(
    memory: Memory, measured: Sequence[Measured], tasks: Mapping[str, LoggedTask], seed: int
) -> list[Played]:
    """Play each persona at its task, `RUNS` times; every memory gets the same draws."""
    found: list[Played] = []
    for id, personas in groupby(sorted(measured), key=lambda each: each.task):
        task = tasks[id]
        recall = memory.recall(task)
        fails = np.array([reply.call.failure is not None for reply in task.replies.values()])
        # Chances of failure of all proposals, where the memory states them all.
        risks = np.array(recall.risks, float) if recall.risks and None not in recall.risks else None
        loss = None
        if risks is not None:
            chances = np.clip(risks, LEAST, 1.0 - LEAST)
            loss = float(-np.mean(np.log(np.where(fails, chances, 1.0 - chances))))
        read = np.log(factors(task.proposals, recall))
        for _, agent in personas:
            ready = np.log(task.readiness(agent))
            needed, failed, safest = [], [], []
            for run in range(RUNS):
                key = f"{seed}/{id}/{agent}/{run}"
                drawn = ready + luck(task, key)
                failed.append(fails[np.argmax(drawn + read)])
                if risks is not None:
                    safest.append(fails[np.lexsort((-drawn, risks))[0]])
                needed.append(
                    await _in_session(memory, task, recall, drawn, read, key)
                    if memory.in_session
                    else _calls_needed(drawn + read, task)
                )
            solved = tuple(float(np.mean([each <= budget for each in needed])) for budget in range(1, BUDGET + 1))
            calls = float(np.mean([min(each, BUDGET) for each in needed]))
            fail_safest = float(np.mean(safest)) if safest else None
            found.append(Played(id, agent, solved, calls, float(np.mean(failed)), fail_safest, loss))
    return found


def _calls_needed(scores: Floats, task: LoggedTask) -> int:
    """Position of the first proposal that solves the task, from 1, for a memory that says nothing in a session."""
    hits = np.flatnonzero(task.solves()[np.argsort(-scores, kind="stable")])
    return int(hits[0]) + 1 if len(hits) else BUDGET + 1


async def _in_session(memory: Memory, task: LoggedTask, recall: Recall, drawn: Floats, read: Floats, key: str) -> int:
    texts, solves = task.proposals, task.solves()
    scores, left = drawn + read, np.zeros(len(texts))
    async with memory.attend(task, recall, key) as attended:
        for number in range(1, min(BUDGET, len(texts)) + 1):
            chosen = int(np.argmax(scores + left))
            if solves[chosen]:
                return number
            left[chosen] = -np.inf
            if await attended.took(texts[chosen], task.replies[texts[chosen]]):
                scores = drawn + np.log(factors(texts, attended.recall))
    return BUDGET + 1
