"""Separate what a predictor may read of a logged session from how the session ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.trajectory import Trajectory
from streams.offline.memory_pipeline import OfflineRun, run_logs


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


def cases_of(
    train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int, say: Callable[[str], None]
) -> tuple[list[Case], list[Case], OfflineRun]:
    """Run the sessions through the pipeline: cases to learn from, cases to predict, and what was learned.

    `say` is called with each step before it.
    """
    source = {each.session: each.source for each in (*train, *test)}
    say(f"learning from {len(train):,} sessions")
    learned = asyncio.run(run_logs(train, seed=seed, learn=True))
    say(f"reading {len(test):,} test sessions")
    unseen = asyncio.run(run_logs(test, seed=seed, learn=False, started=learned.ended))
    known, asked = ([case_of(each, source[each.session]) for each in part.trajectories] for part in (learned, unseen))
    return known, asked, learned
