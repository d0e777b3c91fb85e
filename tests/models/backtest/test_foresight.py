from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fleetlore.wire.trajectory import Trajectory
from models.backtest.baseline import fit_tfidf
from models.backtest.cases import Case
from models.backtest.foresight import foresee, prediction_scores
from models.backtest.priors import priors
from models.backtest.scores import Floats

MakeCase = Callable[..., Case]
GOOD, BAD, LAST = ("SELECT good", None), ("SELECT bad", None), ("SUBMIT", None)


def knows(beginnings: Sequence[Trajectory], calls: int) -> Floats:
    """A predictor that reads the last call."""
    assert all(len(each.calls) == calls for each in beginnings)
    return np.array([0.9 if "bad" in each.calls[-1].arguments else 0.2 for each in beginnings])


def test_only_sessions_that_still_run_are_foreseen(make_case: MakeCase) -> None:
    cases = [
        make_case("1", "ann", "cook", BAD, LAST),
        make_case("2", "ann", "cook", GOOD, LAST, failed=False),
        # Over after its first call: its end is no prediction, and this one would be wrong.
        make_case("3", "ann", "cook", GOOD),
        # How it ended is not known.
        make_case("4", "ann", "cook", GOOD, LAST, failed=None),
    ]
    figures, calibration = prediction_scores(cases, ["A"] * 4, foresee(cases, knows))
    assert figures == {"shop": {"A": {"k1": 1.0, "k2": None, "k3": None, "within_task_k1": 1.0}}}
    assert calibration["shop"]["brier"] == pytest.approx(0.025)
    assert calibration["shop"]["ece"] == pytest.approx(0.15)


def test_within_a_task_a_hard_task_is_no_foresight(make_case: MakeCase) -> None:
    cases = [make_case(f"{n}", "ann", "hard", BAD, LAST) for n in range(3)]
    cases += [make_case(f"e{n}", "ann", "easy", GOOD, LAST, failed=False) for n in range(3)]
    figures, _ = prediction_scores(cases, ["T"] * 6, foresee(cases, knows))
    assert figures["shop"]["T"] == {"k1": 1.0, "k2": None, "k3": None, "within_task_k1": None}


def test_tfidf_learns_from_beginnings_alone(make_case: MakeCase) -> None:
    train = [
        make_case(f"{n}", "ann", "cook", *([BAD] if n % 2 else [GOOD]), LAST, failed=bool(n % 2)) for n in range(20)
    ]
    figures, _ = prediction_scores(train, ["K"] * 20, foresee(train, fit_tfidf(train, seed=0)))
    assert figures["shop"]["K"]["k1"] == 1.0
    # No session runs after two calls: there is no model and nothing to predict.
    assert figures["shop"]["K"]["k2"] is None


def test_priors_leave_the_agent_itself_and_the_task_itself_out(make_case: MakeCase) -> None:
    train = [
        make_case("1", "ann", "cook", GOOD, LAST, failed=True),
        make_case("2", "ben", "cook", GOOD, LAST, failed=False),
        make_case("3", "ann", "bake", GOOD, LAST, failed=False),
        make_case("4", "ben", "bake", GOOD, LAST, failed=True),
    ]
    test = [
        make_case("5", "ann", "cook", GOOD, LAST, failed=False),  # others on cook: 0 of 1; ann elsewhere: 0 of 1
        make_case("6", "ben", "cook", GOOD, LAST, failed=True),  # others on cook: 1 of 1; ben elsewhere: 1 of 1
    ]
    assert priors(train, test, ["K", "K"]) == {"shop": {"K": {"task": 1.0, "agent": 1.0}}}


def test_priors_are_null_where_nothing_is_known(make_case: MakeCase) -> None:
    train = [make_case("1", "ann", "cook", GOOD, LAST)]
    test = [make_case("2", "new", "cook", GOOD, LAST), make_case("3", "new", "cook", GOOD, LAST, failed=False)]
    assert priors(train, test, ["A", "A"]) == {"shop": {"A": {"task": 0.5, "agent": None}}}
