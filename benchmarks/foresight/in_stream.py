"""Predict test sessions once more in the order of the stream: with those that ended before each began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.foresight.earlier_sessions import EarlierSessions, Ended, Pull
from models.backtest.cases import Case, Slice
from models.backtest.foresight import Foreseen
from models.backtest.scores import Floats
from models.judge.critic import Critic

# Nothing is so sure that it has no log odds.
SUREST = 1e-9


def in_stream(
    cases: Sequence[Case], slices: Sequence[Slice], foreseen: Foreseen, critic: Critic, pull: Pull
) -> Foreseen:
    """The same predictions, each corrected by the test sessions of its source and family of tools that had ended when
    it began.

    Only for agents and tasks that training does not have (by the slice), and from sessions that ran on after as many
    calls.
    """
    corrected: Foreseen = {}
    for calls, (places, probability) in foreseen.items():
        p = np.clip(probability, SUREST, 1 - SUREST)
        logits = np.log(p / (1 - p))
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row, place in enumerate(places):
            groups[cases[place].source, critic.family(cases[place].trajectory, calls)].append(row)
        for rows in groups.values():
            own = [places[row] for row in rows]
            logits[rows] = _corrected([cases[each] for each in own], [slices[each] for each in own], logits[rows], pull)
        corrected[calls] = places, np.asarray(1 / (1 + np.exp(-logits)), np.float64)
    return corrected


def _corrected(cases: Sequence[Case], slices: Sequence[Slice], logits: Floats, pull: Pull) -> list[float]:
    known = [_ended(*each) for each in zip(cases, slices, logits.tolist(), strict=True)]
    by_end = iter(sorted(range(len(cases)), key=lambda row: cases[row].ended))
    earlier, next_end = EarlierSessions(pull), next(by_end)
    corrected: list[float] = logits.tolist()
    for row in sorted(range(len(cases)), key=lambda row: cases[row].trajectory.started):
        while cases[next_end].ended < cases[row].trajectory.started:
            earlier.add(known[next_end])
            next_end = next(by_end)
        corrected[row] = earlier.logit(known[row].agent, known[row].task, known[row].logit)
    return corrected


def _ended(case: Case, slice_: Slice, logit: float) -> Ended:
    agent = case.agent if slice_ in ("A", "AT", "S") else ""
    task = case.task if slice_ in ("T", "AT", "S") else ""
    return Ended(case.trajectory.session, agent, task, logit, bool(case.failed))
