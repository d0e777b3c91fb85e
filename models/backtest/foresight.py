"""Predict how a session ends from its first tool calls, by slices: the interface of critic and baselines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from fleetlore.wire.trajectory import Trajectory
from models.backtest.cases import Case, Slice
from models.backtest.scores import Floats, brier, calibration_error, calibration_error_by_chance, within_auroc
from models.data.auroc import auroc
from models.judge.prefix import first_calls

FIRST_CALLS: Final = (1, 2, 3)

# P(fails), or any score that grows with it, of sessions as they were after so many calls: (n,).
Predictor = Callable[[Sequence[Trajectory], int], Floats]
BySlice = dict[str, dict[str, dict[str, float | None]]]
# By number of calls: the sessions that still ran, and their predictions.
Foreseen = dict[int, tuple[list[int], Floats]]


def running(cases: Sequence[Case], calls: int) -> tuple[list[int], list[Trajectory]]:
    """The sessions with a known end that still ran after `calls` tool calls, and what was known of them then."""
    places, beginnings = [], []
    for place, case in enumerate(cases):
        beginning = first_calls(case.trajectory, calls) if case.failed is not None else None
        if beginning is not None:
            places.append(place)
            beginnings.append(beginning)
    return places, beginnings


def foresee(cases: Sequence[Case], predict: Predictor) -> Foreseen:
    """Predictions for the sessions that still run after 1, 2 and 3 calls."""
    beginnings = {calls: running(cases, calls) for calls in FIRST_CALLS}
    return {calls: (places, predict(of, calls)) for calls, (places, of) in beginnings.items() if places}


def prediction_scores(
    cases: Sequence[Case], slices: Sequence[Slice], foreseen: Foreseen
) -> tuple[BySlice, dict[str, dict[str, float | None]]]:
    """AUROC by source and slice, and calibration by source over all predictions after 1, 2 and 3 calls."""
    figures: BySlice = {}
    made: dict[str, list[tuple[float, bool, int]]] = defaultdict(list)
    for source, slice_ in sorted(set(zip((case.source for case in cases), slices, strict=True))):
        figures.setdefault(source, {})[slice_] = {**{f"k{k}": None for k in FIRST_CALLS}, "within_task_k1": None}
    for calls, (places, probability) in foreseen.items():
        failed = np.array([cases[place].failed for place in places], bool)
        for source, slice_, chosen in _groups(cases, slices, places):
            row = figures[source][slice_]
            row[f"k{calls}"] = auroc(probability[chosen], failed[chosen])
            if calls == 1:
                tasks = [cases[places[each]].task for each in chosen]
                row["within_task_k1"] = within_auroc(probability[chosen], failed[chosen], tasks)
        for place, p, outcome in zip(places, probability.tolist(), failed.tolist(), strict=True):
            made[cases[place].source].append((p, outcome, place))
    calibration = {}
    for source in sorted(figures):
        rows = np.array(made[source], float).reshape(-1, 3)
        p, outcomes = rows[:, 0], rows[:, 1] > 0.5
        calibration[source] = {
            "brier": brier(p, outcomes),
            "ece": calibration_error(p, outcomes),
            "ece_by_chance": calibration_error_by_chance(p, rows[:, 2].astype(int).tolist()),
        }
    return figures, calibration


def _groups(
    cases: Sequence[Case], slices: Sequence[Slice], places: Sequence[int]
) -> Iterator[tuple[str, Slice, list[int]]]:
    """Each source and slice, with the indices of `places` in it."""
    groups: dict[tuple[str, Slice], list[int]] = defaultdict(list)
    for index, place in enumerate(places):
        groups[cases[place].source, slices[place]].append(index)
    for (source, slice_), chosen in sorted(groups.items()):
        yield source, slice_, chosen
