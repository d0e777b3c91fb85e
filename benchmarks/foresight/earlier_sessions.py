"""Predict a session by those that ended before, where a fit knows nothing of its agent or its task.

An agent that is new to a fit has a failure rate of its own, and its first steps tell more or less than those of others.
No step tells that beforehand, its own earlier sessions do: slope and shift of what was foreseen of them
(`models.judge.calibration`). A new task is as hard as it was for those who were at it before: a shift, on top of what
is known of these agents. Both are pulled towards what the fit says, which is all that is said of an agent and a task
that nobody has seen.

How strongly, is learned in the fit, from agents and tasks that were left out of it; by all families of tools together,
because most have a handful of agents: of SQL alone, six, it would be learned that agents do not differ, and the next
two did.

What is known is a function of the set of ended sessions: a session counts once, in whatever order they come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from models.judge.calibration import PINNED, Flags, Floats, evidence, platt
from models.judge.critic_fit import FITTED, LeftOut, Numbers

# The strongest first: where nothing was left out, as little as possible is made of a few sessions.
SLOPES: Final = (64.0, 16.0, 4.0)
SHIFTS: Final = (64.0, 16.0, 4.0, 1.0, 0.25)


class Pull(NamedTuple):
    """How strongly a new agent's slope and shift and a new task's shift are pulled towards 1, 0 and 0: precisions of
    what these are over agents and over tasks.
    """

    slope: float = SLOPES[0]
    shift: float = SHIFTS[0]
    task: float = SHIFTS[0]


class Ended(NamedTuple):
    """A session that ended, and what was foreseen of it.

    Attributes:
        agent, task: empty where the fit knows it.
        logit: of P(fails), as the fit alone says it.
    """

    session: str
    agent: str
    task: str
    logit: float
    failed: bool


class EarlierSessions:
    """Those of one source, foreseen at one number of calls."""

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._sessions: dict[str, Ended] = {}
        self._agents: dict[str, set[str]] = defaultdict(set)
        self._tasks: dict[str, set[str]] = defaultdict(set)
        self._calibrations: dict[str, tuple[float, float]] = {"": (1.0, 0.0)}

    def add(self, ended: Ended) -> None:
        """Know one more; of two that are said of one session the greater counts."""
        before = self._sessions.get(ended.session)
        if before is not None:
            if before >= ended:
                return
            self._agents[before.agent].discard(ended.session)
            self._tasks[before.task].discard(ended.session)
            self._forget(before.agent)
        self._sessions[ended.session] = ended
        self._agents[ended.agent].add(ended.session)
        self._tasks[ended.task].add(ended.session)
        self._forget(ended.agent)

    def logit(self, agent: str, task: str, logit: float) -> float:
        """Of P(fails) of a session that has not ended, where the fit alone says `logit`. An empty name: the fit knows
        it.
        """
        slope, shift = self._calibration(agent)
        return slope * logit + shift + (self._shift(task) if task else 0.0)

    def _forget(self, agent: str) -> None:
        if agent:
            self._calibrations.pop(agent, None)

    def _calibration(self, agent: str) -> tuple[float, float]:
        known = self._calibrations.get(agent)
        if known is None:
            own = self._of(self._agents.get(agent, ()))
            known = platt(_logits(each.logit for each in own), _ends(own), (self._pull.slope, self._pull.shift))
            self._calibrations[agent] = known
        return known

    def _shift(self, task: str) -> float:
        own = self._of(self._tasks.get(task, ()))
        logits = []
        for each in own:
            slope, shift = self._calibration(each.agent)
            logits.append(slope * each.logit + shift)
        return platt(_logits(logits), _ends(own), (PINNED, self._pull.task))[1]

    def _of(self, sessions: Iterable[str]) -> list[Ended]:
        # In the order of their names: sums in another order differ in their last bits.
        return [self._sessions[session] for session in sorted(sessions)]


def pull_of(left_out: Sequence[LeftOut]) -> Pull:
    """The one under which what happened to agents and tasks that were left out is the likeliest (empirical Bayes)."""
    agents = [own for each in left_out for own in _apart(each, each.agents)]
    tasks = [own for each in left_out for own in _apart(each, each.tasks)]
    slope, shift = max(product(SLOPES, SHIFTS), key=_evidence_of(agents))
    _, task = max(product((PINNED,), SHIFTS), key=_evidence_of(tasks))
    return Pull(slope, shift, task)


def _evidence_of(sessions: Sequence[tuple[Floats, Flags]]) -> Callable[[tuple[float, float]], float]:
    return lambda ridge: sum(evidence(logits, failed, ridge) for logits, failed in sessions)


def _apart(left_out: LeftOut, numbers: Numbers) -> list[tuple[Floats, Flags]]:
    """The sessions of each that was left out."""
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    return [(left_out.logits[own], left_out.failed[own]) for own in parts if len(own) and numbers[own[0]] != FITTED]


def _logits(values: Iterable[float]) -> Floats:
    return np.fromiter(values, np.float64)


def _ends(sessions: Sequence[Ended]) -> Flags:
    return np.fromiter((each.failed for each in sessions), bool)
