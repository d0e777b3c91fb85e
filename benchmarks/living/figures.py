"""Count what models did, arm by arm, with 95 % bootstrap intervals that are paired by task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.evaluate.figures import interval
from benchmarks.living.agent import Played, Step
from benchmarks.living.states import State
from benchmarks.living.world import Call, Task, World

NONE = "none"
_PREFIX = re.compile(r"(no such column: )\w+\.")
# A placeholder in advice, and the values that match it.
_PLACEHOLDER = re.compile(r"<[a-z]+>")
_VALUE = re.compile(r"'[^']*'|<[a-z]+>|\b\d+(?:\.\d+)?\b")
_NEAR = re.compile(r"near \".*?\"")


class Past:
    """The calls and failures of the past, for copies and repetitions."""

    def __init__(self, world: World, past: Sequence[Played]) -> None:
        self._world = world
        self._calls = {(each.task.place, step.call.folded, each.task.id) for each in past for step in each.steps}
        self._failed = {_failure(each.task, step) for each in past for step in each.steps if step.ran.error}

    def copied(self, task: Task, call: Call) -> bool:
        """Whether the past made this very call for another task, or the call is one of these with placeholders in it;
        look-ups are everybody's.
        """
        if self._world.is_look_up(call):
            return False
        shown = _PLACEHOLDER.search(call.folded) is not None
        asked = _VALUE.sub("?", call.folded) if shown else call.folded
        return any(
            place == task.place and id != task.id and asked == (_VALUE.sub("?", text) if shown else text)
            for place, text, id in self._calls
        )

    def known(self, task: Task, step: Step) -> bool:
        """Whether the call failed as one did at this place before."""
        return bool(step.ran.error) and _failure(task, step) in self._failed


def _failure(task: Task, step: Step) -> tuple[str, str]:
    said = _NEAR.sub("near", _PREFIX.sub(r"\1", step.ran.said))
    return task.place, " ".join(said.lower().split())


def of_states(world: World, past: Past, states: Iterable[State], minus: str) -> dict[str, dict[str, Any]]:
    """By arm: `n` states; shares, 0..1, of calls that work (`works`: no error, and no mere look-up), are the
    `same_call`, fail in the same words (`same_failure`), would be `right` if handed in, are `copied`, or only look
    something up; of states that are `told` something; `characters` told on average; and the difference to nothing
    told, of `minus` in `minus_none`, and of the first two and `right` by name.
    """
    by: dict[str, list[State]] = {}
    for state in states:
        by.setdefault(state.arm, []).append(state)
    measured: Mapping[str, Callable[[State], float]] = {
        "works": lambda each: not each.ran.error and not world.is_look_up(each.call),
        "same_call": lambda each: each.call.folded == each.before.folded,
        "same_failure": lambda each: bool(each.ran.error) and world.run(each.task, each.before).said == each.ran.said,
        "right": lambda each: (
            (each.ran.solved or world.run(each.task, each.call._replace(tool=world.tools[1])).solved)
            and not past.copied(each.task, each.call)
        ),
        "copied": lambda each: past.copied(each.task, each.call),
        "look_up": lambda each: world.is_look_up(each.call),
        "told": lambda each: bool(each.told),
        "characters": lambda each: len(each.told),
    }
    report: dict[str, dict[str, Any]] = {}
    for arm, some in by.items():
        values = {name: [float(figure(each)) for each in some] for name, figure in measured.items()}
        report[arm] = {"n": len(some)} | {name: round(float(np.mean(each)), 4) for name, each in values.items()}
        if NONE in by:
            for name in ("works", "right", "same_call"):
                base = [float(measured[name](each)) for each in by[NONE]]
                report[arm][f"{name}_minus_none"] = _paired([each.task for each in some], values[name], base)
            report[arm]["minus_none"] = report[arm][f"{minus}_minus_none"]
    return report


def of_sessions(past: Past, sessions: Mapping[str, Sequence[Played]]) -> dict[str, dict[str, Any]]:
    """By arm: `n` sessions; the share `solved`, copies not counted; means a session of `calls`, of `failed_calls`, of
    these `known_repeated`, of `tokens` read and written; and all of these minus nothing told.
    """
    measured: Mapping[str, Callable[[Played], float]] = {
        "solved": lambda each: each.solved and not past.copied(each.task, each.steps[-1].call),
        "calls": lambda each: len(each.steps),
        "failed_calls": lambda each: sum(bool(step.ran.error) for step in each.steps),
        "known_repeated": lambda each: sum(past.known(each.task, step) for step in each.steps),
        "tokens": lambda each: each.tokens,
    }
    report: dict[str, dict[str, Any]] = {}
    for arm, some in sessions.items():
        values = {name: [float(figure(each)) for each in some] for name, figure in measured.items()}
        report[arm] = {"n": len(some)} | {name: round(float(np.mean(each)), 4) for name, each in values.items()}
        if NONE in sessions:
            report[arm]["minus_none"] = {
                name: _paired(
                    [each.task for each in some], values[name], [float(figure(each)) for each in sessions[NONE]]
                )
                for name, figure in measured.items()
            }
    return report


def _paired(tasks: Sequence[Task], ours: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    return interval([each.id for each in tasks], [a - b for a, b in zip(ours, base, strict=True)])
