"""Bootstrap intervals against cases that are known, and the figures of a run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.demo.world import NETWORK, Call, Reply
from benchmarks.evaluate.figures import figures, repairs, steps_taken
from benchmarks.evaluate.past import contents
from benchmarks.evaluate.statistics import interval, paired_difference
from benchmarks.evaluate.worlds.recorded import Recorded

OK, ERROR, STORM = Reply("ok"), Reply("", "1", "no", "rule"), Reply("", "503", "busy", NETWORK)


def recorded(*replies: Reply, succeeded: bool = True, shortest: int = 2, budget: int = 8, tools: str = "") -> Recorded:
    names = tools or "t" * len(replies)
    steps = tuple((Call(name, {}), reply) for name, reply in zip(names, replies, strict=True))
    return Recorded("s", "a", "task", "goal", 0, steps, succeeded, shortest, budget)


def test_equal_runs_have_no_width() -> None:
    found = interval({0: [0.5, 0.5], 1: [0.5, 0.5]})
    assert (found.mean, found.low, found.high, found.gap) == (0.5, 0.5, 0.5, 0.0)


def test_independent_runs_give_about_the_normal_interval() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(10.0, 2.0, size=200)
    found = interval({number: [value] for number, value in enumerate(values)})
    half = 1.96 * values.std(ddof=1) / math.sqrt(200)
    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.12)
    assert found.greatest == values.max() and found.smallest == values.min()


def test_orders_of_one_seed_are_not_counted_as_independent() -> None:
    clustered = {seed: [float(seed)] * 10 for seed in range(4)}
    spread = {number: [float(number % 4)] for number in range(40)}
    narrow, wide = interval(spread), interval(clustered)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_what_runs_have_in_common_cancels_out() -> None:
    ours = {seed: [seed + 1.0, seed + 3.0] for seed in range(5)}
    theirs = {seed: [seed + 0.5, seed + 2.5] for seed in range(5)}
    found = paired_difference(ours, theirs)
    assert found.low == found.high == pytest.approx(0.5)


def test_runs_without_the_figure_are_left_out_and_none_at_all_is_an_error() -> None:
    assert interval({0: [math.nan, 1.0], 1: [math.nan]}).mean == 1.0
    with pytest.raises(ValueError, match="no runs"):
        interval({0: [math.nan]})


def test_an_error_is_what_stays_and_a_repair_what_follows_soon() -> None:
    session = recorded(STORM, ERROR, OK, OK, ERROR, OK, OK, OK, tools="tttttuuu")
    assert session.errors == [1, 4]
    assert repairs(session) == [True, False]


def test_a_failed_session_counts_with_its_whole_budget() -> None:
    assert steps_taken(recorded(OK, OK, OK)) == 1.5
    assert steps_taken(recorded(OK, OK, OK, succeeded=False)) == 4.0


def test_success_is_counted_within_multiples_of_the_shortest_way() -> None:
    found = figures([recorded(OK, OK, OK), recorded(OK, OK), recorded(OK, OK, succeeded=False), recorded(*[OK] * 5)])
    assert [found[f"success_{each}x"] for each in ("1.25", "1.5", "2", "2.5")] == [0.25, 0.5, 0.5, 0.75]
    assert found["success"] == 0.75


def test_recovery_is_of_the_sessions_that_met_an_error() -> None:
    sessions = [recorded(OK, OK), recorded(ERROR, OK), recorded(ERROR, ERROR, succeeded=False), recorded(STORM, OK)]
    found = figures(sessions)
    assert found["success"] == 0.75
    assert found["recovery"] == 0.5
    assert found["errors"] == 0.75
    assert found["repair"] == pytest.approx(1 / 3)
    assert [found[f"success_{each}x"] for each in ("1.25", "1.5", "2")] == [0.75, 0.75, 0.75]
    assert math.isnan(figures(sessions[:1])["recovery"])
    with pytest.raises(ValueError, match="no sessions"):
        figures([])


def test_a_past_says_how_its_calls_ended_and_what_it_has_solved() -> None:
    solved = replace(recorded(OK, ERROR), task="known", forward=1)
    lost = replace(recorded(OK, STORM, succeeded=False), task="hard")
    found = contents([solved, lost], ["known", "hard", "new", "known"])
    assert found == {"success": 0.5, "failed": 0.25, "forward": 0.25, "silent": 0.5, "solved_before": 0.5}
