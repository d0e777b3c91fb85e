"""Measure what is learned from failures without an error: does a task's item name the step that a session will lack?

Over test sessions that failed although no call of theirs did, at tasks that training knows. The step that was missing
is known from other test sessions of the task: what most of those that succeeded did, and this one did not. An item
names steps that failed sessions lacked (`models.memory.contrast`); the first of them counts. Beside it, one step each:
the one that most successes of training made (`most_frequent`), and what the item of another task of the source names
(`shuffled`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from benchmarks.backtest.cases import Case
from fleetlore.wire.lore import NOT_DONE, ONLY_FAILED, MemoryItem
from models.distil.strategy import outline
from models.memory.contrast import REPEATED

# The first number after `NOT_DONE`.
_STEP = re.compile(r" (\d+)")


def silence(train: Sequence[Case], test: Sequence[Case], items: Iterable[MemoryItem], seed: int) -> dict[str, object]:
    """By source: `failed` test sessions, the share of them that was `silent`; `asked`, of how many of those the missing
    step is known; shares of these: `item` (a strategy of the task exists), `named`, `most_frequent`, `shuffled`.
    """
    missing = {item.task: first for item in items if item.kind == "strategy" and (first := _first_missing(item))}
    usual = _most_frequent(train)
    return {
        source: _figures([case for case in test if case.source == source], missing, usual, Random(seed))
        for source in sorted({case.source for case in test})
    }


def _figures(
    cases: Sequence[Case], missing: dict[str, str], usual: dict[str, str], rng: Random
) -> dict[str, float | None]:
    solved: dict[str, list[frozenset[str]]] = defaultdict(list)
    for case in cases:
        if case.failed is False:
            solved[case.task].append(steps_of(case))
    failed = [case for case in cases if case.failed]
    silent = [case for case in failed if not any(step.failed for step in case.trajectory.calls)]
    asked = []
    for case in silent:
        shared = _shared(solved[case.task]) - steps_of(case)
        if shared and case.task in usual:
            asked.append((case.task, shared))
    tasks = [task for task, _ in asked if task in missing]
    others = {
        task: rng.choice(rest) for task in dict.fromkeys(tasks) if (rest := [each for each in tasks if each != task])
    }
    return {
        "failed": len(failed),
        "silent": len(silent) / len(failed) if failed else None,
        "asked": len(asked),
        "item": _share(task in missing for task, _ in asked),
        "named": _share(missing.get(task) in lacked for task, lacked in asked),
        "most_frequent": _share(usual[task] in lacked for task, lacked in asked),
        "shuffled": _share(missing.get(others.get(task, "")) in lacked for task, lacked in asked),
    }


def steps_of(case: Case) -> frozenset[str]:
    """The calls that worked, as items quote them."""
    return frozenset(outline([call for call in case.trajectory.calls if not call.failed]))


def _shared(sessions: Sequence[frozenset[str]]) -> frozenset[str]:
    counts = Counter(step for steps in sessions for step in steps)
    return frozenset([step for step, times in counts.items() if 2 * times > len(sessions)])


def _most_frequent(train: Iterable[Case]) -> dict[str, str]:
    """By task, the step that most successes made."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case in train:
        if case.failed is False:
            counts[case.task].update(steps_of(case))
    return {task: min(found, key=lambda step: (-found[step], step)) for task, found in counts.items() if found}


def _first_missing(item: MemoryItem) -> str:
    """The first step that an item says failed sessions lacked."""
    lines = item.content.splitlines()
    place = next((place for place, line in enumerate(lines) if line.startswith(NOT_DONE)), len(lines))
    if place < len(lines) and (step := _STEP.match(lines[place], len(NOT_DONE))):
        numbered = next(line for line in lines if line.startswith(f"{step[1]}. "))
        return REPEATED.sub("", numbered.removeprefix(f"{step[1]}. "))
    following = lines[place + 1] if place + 1 < len(lines) else ""
    return following.removeprefix("- ") if following.startswith("- ") and not following.startswith(ONLY_FAILED) else ""


def _share(hits: Iterable[bool]) -> float | None:
    found = list(hits)
    return sum(found) / len(found) if found else None
