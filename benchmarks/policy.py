"""What `policy.score` costs an agent: 8 candidates for the next call of a session, by the public API, on one core.

Sessions of the scripted world with 1 to 15 steps behind them; each call is timed by the thread's CPU clock, and what that clock
costs itself is taken off. The figure is for calls of which no text was met before in that form (new arguments every time), where
all 8 have to be embedded; the other row is for candidates that the agent has weighed before.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import replace
from typing import Any

import orjson
import torch

from benchmarks.advice import percentile
from benchmarks.report import Report, Row
from fleetlore.policy import Policy
from fleetlore.testing.adapters import manifest_for, random_weights
from fleetlore.testing.world import rollouts
from fleetlore.trajectory import Step

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
    policy = Policy()
    policy.swap(weights, replace(manifest_for(weights, "default"), tools=tuple(sorted({tool for tool, _ in calls}))))
    count = QUICK_CALLS if quick else CALLS
    _scored(policy, sessions, calls, QUICK_CALLS, fresh=False)  # what is loaded on first use is not a call's cost
    known, fresh = (_scored(policy, sessions, calls, count, fresh=fresh) for fresh in (False, True))
    return Report(
        name="policy",
        figure=percentile(fresh, 99),
        bar=BAR_MILLISECONDS,
        unit=UNIT,
        higher_is_better=False,
        peers={},
        rows=(
            Row(name="8 new candidates", figure=percentile(fresh, 99), unit=UNIT, note=f"{count:,} calls"),
            Row(name="  the same", figure=percentile(fresh, 50), unit="ms of CPU, p50"),
            Row(name="8 candidates weighed before", figure=percentile(known, 99), unit=UNIT),
            Row(name="  the same", figure=percentile(known, 50), unit="ms of CPU, p50"),
        ),
    )


def _scored(
    policy: Policy, sessions: list[dict[str, Any]], calls: list[tuple[str, Any]], count: int, *, fresh: bool
) -> list[float]:
    """Milliseconds of CPU of each of `count` calls."""
    chance, clock = random.Random(0), time.thread_time_ns
    taken = []
    gc.collect()
    gc.freeze()
    for number in range(count):
        session = sessions[number % len(sessions)]
        steps = [_step(place, step) for place, step in enumerate(session["steps"][: 1 + number % 15])]
        candidates = [
            (tool, {**arguments, "attempt": chance.random()} if fresh else arguments)
            for tool, arguments in chance.sample(calls, CANDIDATES)
        ]
        first, started = clock(), clock()
        policy.score(steps, session["goal"], candidates)
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
