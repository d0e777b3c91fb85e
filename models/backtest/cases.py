"""Separate what a predictor may read of a logged session from how the session ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec.structs import replace

from fleetlore.wire.trajectory import Trajectory

Slice = Literal["A", "T", "AT", "K", "S"]


class Logged(Protocol):
    """What a session is grouped by."""

    @property
    def source(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def task(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Case:
    """One session.

    Attributes:
        trajectory: without what only the end tells: ending, reward, feedback, number of events, end time.
        source: where it was logged.
        failed: how it ended; None if the log does not say.
        ended: when, not before it began; event time in seconds since the Unix epoch.
    """

    trajectory: Trajectory
    source: str
    failed: bool | None
    ended: float

    @property
    def agent(self) -> str:
        return self.trajectory.agent

    @property
    def task(self) -> str:
        return self.trajectory.task


def case_of(trajectory: Trajectory, source: str) -> Case:
    """Move the outcome out of the session."""
    failed = {"failure": True, "success": False}.get(trajectory.ending)
    hidden = replace(
        trajectory,
        # A part of a long session stays one: the cut is visible while it runs, and no judge judges it.
        ending="continued" if trajectory.ending == "continued" else "unknown",
        reward=None,
        feedback=None,
        events=len(trajectory.steps),
        ended=trajectory.started,
    )
    return Case(hidden, source, failed, max(trajectory.started, trajectory.ended))


def slices_of(train: Sequence[Logged], test: Sequence[Logged]) -> list[Slice]:
    """The slice of each test session, by what its source's training sessions know.

    A: a known task, a new agent; T: a known agent, a new task; AT: both new; K: both known; S: nothing of the source is
    known. Agents and tasks are known by name within their source.
    """
    agents = {(case.source, case.agent) for case in train}
    tasks = {(case.source, case.task) for case in train}
    sources = {source for source, _ in agents}
    names: Mapping[tuple[bool, bool], Slice] = {
        (False, True): "A",
        (True, False): "T",
        (False, False): "AT",
        (True, True): "K",
    }
    return [
        names[(case.source, case.agent) in agents, (case.source, case.task) in tasks] if case.source in sources else "S"
        for case in test
    ]
