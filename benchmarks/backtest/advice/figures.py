"""Compute the section `advice` of a backtest, by source and slice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.auroc import auroc
from benchmarks.backtest.advice.rivals import RIVALS, Calls
from benchmarks.backtest.advice.ways_out import (
    Foreign,
    Solved,
    foreign_literals,
    names_solution,
    said_of_failures,
    shuffled_hit_rate,
    solutions,
)
from benchmarks.backtest.scores import Bools, Floats, calibration_error
from models.backtest.heard import FAILED, WORKED, CallLog, Heard, Told, Turn
from models.backtest.report import advice_row, mean, ways_out

Figures = dict[str, Any]
BySlice = dict[str, Figures]

ADVICE_TABLES: Final = {
    "Advice before a call": (
        "calls",
        "failed",
        "warned",
        "fail_warned",
        "fail_unwarned",
        "auroc",
        "auroc_first",
        "auroc_after_success",
        "named_kind",
        "named_exact",
    ),
    "Advice after a failure, at the start, and its length": (
        "way_out",
        "way_out_shuffled",
        "way_out_said",
        "foreign_literals",
        "start_solution",
        "chars_call",
        "chars_session",
    ),
}
# A tool with fewer test calls has no rows of its own.
LEAST_CALLS: Final = 1000
SHARES: Final = (0.1, 0.2)

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AdviceFigures:
    """Figures of what was heard in test sessions; None where undefined.

    Attributes:
        advice: by source and slice.
        by_tool: the same of each tool with many calls, where a source has several; by source, tool and slice.
        beside: by source and slice, what stands beside them. `pseudo_calls`: of which no agent asks, by name with
            calls, failed and warned. `passing`: calls left out because their failure passes by itself. `ways_out`: how
            many have words not seen before. `sessions_with_foreign_literals`. `auroc_after_failure`.
            `calibration_error`. `failed_said`: share of the failures before or after which something was said;
            `failed_said_so_far`: or was of the same failure earlier in the session; `failed_again`: share of them that
            are the very same call as one that failed before in the session, `failed_said_again`: and share of these
            of which something was said. `first_calls` of sessions: calls,
            failed, warned, fail_warned, recall, named_kind, named_exact, and P(fails) of the tenth and the fifth of
            them with the highest risk.
    """

    advice: dict[str, BySlice]
    by_tool: dict[str, dict[str, BySlice]]
    beside: dict[str, BySlice]

    def to_dict(self) -> dict[str, Any]:
        """As sections of a report."""
        return {"advice": self.advice, "advice_by_tool": self.by_tool, "advice_beside": self.beside}

    def add(self, other: AdviceFigures) -> None:
        """Take in the slices of another run."""
        for mine, theirs in ((self.advice, other.advice), (self.beside, other.beside)):
            for source, slices in theirs.items():
                mine.setdefault(source, {}).update(slices)
        for source, tools in other.by_tool.items():
            for tool, slices in tools.items():
                self.by_tool.setdefault(source, {}).setdefault(tool, {}).update(slices)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Calls that have a label, one a row.

    Attributes:
        risk: the base rate where nothing was said.
        rivals: scores by name.
        session: the place of each call's session in the list of those of its source.
    """

    turns: Sequence[Turn]
    told: Sequence[Told]
    failed: Bools
    risk: Floats
    rivals: Mapping[str, Floats]
    session: Rows

    def at(self, rows: Rows) -> _Asked:
        return _Asked(
            [self.turns[row] for row in rows],
            [self.told[row] for row in rows],
            self.failed[rows],
            self.risk[rows],
            {name: scores[rows] for name, scores in self.rivals.items()},
            self.session[rows],
        )

    @property
    def warned(self) -> Bools:
        return np.array([said.warned for said in self.told], bool)

    def after(self, what: str) -> Bools:
        return np.array([turn.after == what for turn in self.turns], bool)

    @property
    def first(self) -> Bools:
        return np.array([turn.number == 0 for turn in self.turns], bool)


def advice_figures(
    train: Sequence[CallLog], heard: Sequence[Heard], slices: Sequence[Sequence[str]], seed: int
) -> AdviceFigures:
    """All figures of what was heard.

    Args:
        train: what was learned from.
        slices: of each test session; it may be in several.
    """
    solved = solutions([*train, *(each.log for each in heard)])
    figures = AdviceFigures({}, {}, {})
    for source in sorted({each.log.source for each in heard}):
        own = [place for place, each in enumerate(heard) if each.log.source == source]
        sessions = [heard[place] for place in own]
        known = [log for log in train if log.source == source] or train
        asked = _asked(known, sessions, seed)
        foreign = foreign_literals(sessions, known)
        tools = np.array([turn.call.tool for turn in asked.turns])
        large = [tool for tool in sorted(set(tools)) if LEAST_CALLS <= (tools == tool).sum() < len(tools)]
        for slice_ in sorted({name for place in own for name in slices[place]}):
            inside = np.array([slice_ in slices[place] for place in own], bool)
            rows = np.flatnonzero(inside[asked.session])
            chosen = np.flatnonzero(inside).tolist()
            figures.advice.setdefault(source, {})[slice_] = _row(
                sessions, foreign, chosen, asked.at(rows), solved, seed
            )
            figures.beside.setdefault(source, {})[slice_] = _beside(sessions, foreign, chosen, asked.at(rows))
            for tool in large:
                its = asked.at(rows[tools[rows] == tool])
                if its.turns:
                    chosen = sorted(set(its.session.tolist()))
                    row = _row(sessions, foreign, chosen, its, solved, seed)
                    figures.by_tool.setdefault(source, {}).setdefault(tool, {})[slice_] = row
    return figures


def _asked(train: Sequence[CallLog], heard: Sequence[Heard], seed: int) -> _Asked:
    known, calls = Calls(train), Calls([each.log for each in heard])
    told = [
        (each.before[turn.place], number)
        for number, each in enumerate(heard)
        for turn in each.log.turns()
        if not turn.call.passes
    ]
    return _Asked(
        calls.turns,
        [said for said, _ in told],
        calls.failed,
        np.array([known.base if said.risk is None else said.risk for said, _ in told], np.float64),
        {name: rival(known, calls, seed) for name, rival in RIVALS.items()},
        np.array([number for _, number in told], np.int64),
    )


def _row(
    sessions: Sequence[Heard],
    foreign: Sequence[Foreign],
    chosen: Sequence[int],
    asked: _Asked,
    solved: Solved,
    seed: int,
) -> Figures:
    """One row of the section, with exactly its keys. `chosen`: its sessions."""
    heard = [sessions[number] for number in chosen]
    outs = [out for each in heard for out in ways_out(each)]
    failed, warned, first, worked = asked.failed, asked.warned, asked.first, asked.after(WORKED)
    return {
        **advice_row(heard, list(zip(asked.turns, asked.told, strict=True))),
        "auroc": auroc(asked.risk, failed),
        "auroc_first": auroc(asked.risk[first], failed[first]),
        "auroc_after_success": auroc(asked.risk[worked], failed[worked]),
        **_named(asked),
        "way_out_shuffled": shuffled_hit_rate(outs, seed),
        "foreign_literals": mean([bad for number in chosen for bad in foreign[number].ways_out]),
        "start_solution": mean([names_solution(each, solved) for each in heard if each.log.failed]),
        "rivals": {
            name: {
                "auroc": auroc(score, failed),
                "auroc_first": auroc(score[first], failed[first]),
                "fail_at_share": fail_at_share(score, failed, float(warned.mean()) if len(warned) else 0.0),
            }
            for name, score in asked.rivals.items()
        },
    }


def _beside(sessions: Sequence[Heard], foreign: Sequence[Foreign], chosen: Sequence[int], asked: _Asked) -> Figures:
    heard = [sessions[number] for number in chosen]
    pseudo: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for each in heard:
        for call, said in zip(each.log.calls, each.before, strict=True):
            if call.pseudo:
                pseudo[call.pseudo].append((call.failure is not None, said.warned))
    failures = [failure for each in heard for failure in said_of_failures(each)]
    after = asked.after(FAILED)
    first = asked.at(np.flatnonzero(asked.first))
    failed, warned = first.failed, first.warned
    return {
        "pseudo_calls": {
            name: {"calls": len(rows), "failed": mean([f for f, _ in rows]), "warned": mean([w for _, w in rows])}
            for name, rows in sorted(pseudo.items())
        },
        "passing": sum(turn.call.passes for each in heard for turn in each.log.turns()),
        "ways_out": sum(1 for each in heard for _ in ways_out(each)),
        "sessions_with_foreign_literals": mean([foreign[number].ever for number in chosen]),
        "auroc_after_failure": auroc(asked.risk[after], asked.failed[after]),
        "calibration_error": calibration_error(asked.risk, asked.failed),
        "failed_said": mean([each.now for each in failures]),
        "failed_said_so_far": mean([each.now or each.earlier for each in failures]),
        "failed_again": mean([each.again for each in failures]),
        "failed_said_again": mean([each.now for each in failures if each.again]),
        "first_calls": {
            "calls": len(failed),
            "failed": _share(failed),
            "warned": _share(warned),
            "fail_warned": _share(failed[warned]),
            "recall": _share(warned[failed]),
            **_named(first),
            **{f"fail_at_{share:.0%}": fail_at_share(first.risk, failed, share) for share in SHARES},
        },
    }


def fail_at_share(score: Floats, failed: Bools, share: float) -> float | None:
    """P(fails) among the top `share` of the calls by score; of those with the score at the edge, their mean counts."""
    wanted = share * len(score)
    if wanted <= 0:
        return None
    values, place, count = np.unique(-score, return_inverse=True, return_counts=True)
    fails = np.bincount(place, weights=failed, minlength=len(values))
    taken = np.clip(wanted - (np.cumsum(count) - count), 0, count)
    return float((taken * fails / count).sum() / wanted)


def _named(asked: _Asked) -> dict[str, float | None]:
    """Of warned failures: the share whose kind was named, and of those about names the share with just these."""
    pairs = [
        (said.named, kind)
        for said, turn in zip(asked.told, asked.turns, strict=True)
        if said.warned and (kind := turn.call.kind) is not None
    ]
    return {
        "named_kind": mean([named is not None and named.kind == came.kind for named, came in pairs]),
        "named_exact": mean([named == came for named, came in pairs if came.names]),
    }


def _share(of: Bools) -> float | None:
    return float(of.mean()) if len(of) else None
