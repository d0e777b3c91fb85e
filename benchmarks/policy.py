"""Time `risk_model.failure_probabilities` and `risk_model.risk` before a call, by the public API, on one core.

Sessions of the scripted world, step after step as they went, with up to 15 steps behind a call; each is timed by the
thread's CPU clock, and what that clock costs itself is taken off. The figure is for 8 candidates of which no text was
met before in that form (new arguments every time), so all are embedded. The other rows: candidates that were weighed
before; sessions that the risk model meets in the middle, all of whose steps it has to read first; and the risk of one
new call.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any

import orjson
import torch

from benchmarks.advice import percentile
from benchmarks.random_adapters import manifest_for, random_weights
from benchmarks.report import Report, Row
from benchmarks.rollouts import rollouts
from fleetlore.risk.model import RiskModel
from fleetlore.wire.trajectory import Step

CALLS = 2000
QUICK_CALLS = 50
CANDIDATES = 8
BAR_MILLISECONDS = 3.0
UNIT = "ms of CPU, p99"


def run(quick: bool) -> Report:
    torch.set_num_threads(1)
    sessions = list(rollouts(0, 300))
    calls = [(step["tool"], step["arguments"]) for session in sessions for step in session["steps"]]
    weights = random_weights(1)
    risk_model = RiskModel()
    risk_model.swap(weights, manifest_for(weights, "default", tools=tuple(sorted({tool for tool, _ in calls}))))
    count = QUICK_CALLS if quick else CALLS
    timed = _Timed(risk_model, sessions, calls)
    timed.going_on(QUICK_CALLS, fresh=False)  # what is loaded on first use is not a call's cost
    known, fresh = (timed.going_on(count, fresh=fresh) for fresh in (False, True))
    joined = timed.joined(count)
    risk = timed.going_on(count, fresh=True, candidates=1)
    rows = (
        (f"{CANDIDATES} new candidates", fresh),
        (f"{CANDIDATES} candidates weighed before", known),
        (f"{CANDIDATES} new candidates in the middle of a session", joined),
        ("risk of one new call", risk),
    )
    return Report(
        name="policy",
        figure=percentile(fresh, 99),
        bar=BAR_MILLISECONDS,
        unit=UNIT,
        higher_is_better=False,
        peers={},
        rows=tuple(
            row
            for name, taken in rows
            for row in (
                Row(name=name, figure=percentile(taken, 99), unit=UNIT, note=f"{len(taken):,} calls"),
                Row(name="  the same", figure=percentile(taken, 50), unit="ms of CPU, p50"),
            )
        ),
    )


class _Timed:
    def __init__(self, risk_model: RiskModel, sessions: list[dict[str, Any]], calls: list[tuple[str, Any]]) -> None:
        self._risk_model = risk_model
        self._sessions = [
            (session["goal"], [_step(place, step) for place, step in enumerate(session["steps"])])
            for session in sessions
        ]
        self._calls = calls
        self._chance = random.Random(0)

    def going_on(self, count: int, *, fresh: bool, candidates: int = CANDIDATES) -> list[float]:
        """Milliseconds of CPU of each of `count` calls in sessions that go on step by step."""
        asked = (
            (goal, steps[:upto]) for goal, steps in cycle(self._sessions) for upto in range(min(len(steps), 15) + 1)
        )
        return self._each(islice(asked, count), fresh, candidates)

    def joined(self, count: int) -> list[float]:
        """The same where no call follows another of its session."""
        asked = ((goal, steps[: 1 + n % 15]) for n, (goal, steps) in enumerate(cycle(self._sessions)))
        return self._each(islice(asked, count), True, CANDIDATES)

    def _each(self, asked: Iterable[tuple[str, list[Step]]], fresh: bool, candidates: int) -> list[float]:
        clock, taken = time.thread_time_ns, []
        gc.collect()
        gc.freeze()
        for goal, steps in asked:
            some = [
                (tool, {**arguments, "attempt": self._chance.random()} if fresh else arguments)
                for tool, arguments in self._chance.sample(self._calls, candidates)
            ]
            first, started = clock(), clock()
            if candidates == 1:
                self._risk_model.risk(steps, goal, *some[0])
            else:
                self._risk_model.failure_probabilities(steps, goal, some)
            taken.append((clock() - started - (started - first)) / 1e6)
        gc.unfreeze()
        return taken


def _step(place: int, step: dict[str, Any]) -> Step:
    return Step(
        sequence=place,
        role="tool",
        tool=step["tool"],
        arguments=orjson.dumps(step["arguments"]).decode(),
        error_type=step["error_type"],
        error_message=step["error_message"],
    )
