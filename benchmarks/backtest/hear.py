"""Measure what the agents of logged sessions would have been told, beside rivals and at new places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.backtest.advice.figures import advice_figures
from benchmarks.backtest.advice.places import places_of, slices_by_place, split_by_place
from fleetlore.transcripts.session import LoggedSession
from models.backtest.report import slices_of
from streams.offline.hear import call_log, hear
from streams.offline.memory_pipeline import OfflineRun, run_logs


def advice_report(
    train: Sequence[LoggedSession],
    test: Sequence[LoggedSession],
    learned: OfflineRun,
    *,
    seed: int,
    hold_out: float | None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """The sections `advice`, `advice_by_tool` and `advice_beside` of a backtest (`AdviceFigures`).

    Beside the slices of `slices_of`: P, a known agent at a place (database) of which nothing is known; AP, a new agent
    there.

    Args:
        learned: from the training sessions.
        hold_out: share of the places of each source that are held out in another run, for P and AP; None where the
            test sessions' own places serve.

    Raises:
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    logs = {each.session: call_log(each) for each in (*train, *test)}
    places = places_of(logs.values())
    known = [logs[each.session] for each in train]
    progress(f"asking for advice in {len(test):,} test sessions")
    heard = asyncio.run(hear(learned, test))
    slices: list[tuple[str, ...]] = [(name,) for name in slices_of(known, [each.log for each in heard])]
    if hold_out is None:
        by_place = slices_by_place(known, [each.log for each in heard], places)
        slices = [(*own, *new) for own, new in zip(slices, by_place, strict=True)]
    progress("scoring advice and its rivals")
    figures = advice_figures(known, heard, slices, seed)
    if hold_out is not None:
        outside, inside = split_by_place(train, test, places, seed, hold_out)
        if outside and inside:
            progress(f"learning from {len(outside):,} sessions at other places")
            run = asyncio.run(run_logs(outside, seed=seed, learn=True))
            there = asyncio.run(hear(run, inside))
            known = [logs[each.session] for each in outside]
            by_place = slices_by_place(known, [each.log for each in there], places)
            figures.add(advice_figures(known, there, by_place, seed))
    return figures.to_dict()


def at_places(sessions: Sequence[LoggedSession]) -> list[LoggedSession]:
    """The sessions, each stating the database that its log tells (`benchmarks.backtest.advice.places`) as its place."""
    places = places_of(map(call_log, sessions))
    return [replace(each, place=each.place or places.get((each.source, each.task), "")) for each in sessions]
