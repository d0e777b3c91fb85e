from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.backtest.cases import Case
from benchmarks.backtest.judging import judging
from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.chain import JudgeChain

MakeCase = Callable[..., Case]


class ByCall:
    """Says what the last call says; silent where it says nothing."""

    version = "by-call-1"
    audited = 0.0

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        said = trajectory.calls[-1].arguments
        if said == "?":
            return None
        probability = 0.9 if said == "success" else 0.1
        return Verdict(
            label="success" if said == "success" else "failure", probability=probability, source="rules", version="1"
        )


def test_silence_counts_apart_from_what_was_said(make_case: MakeCase) -> None:
    cases = [
        make_case("1", "ann", "cook", ("failure", None)),
        make_case("2", "ann", "cook", ("success", None)),
        make_case("3", "ann", "cook", ("success", None), failed=False),
        make_case("4", "ann", "cook", ("?", None)),
        make_case("5", "ann", "cook", ("success", None), failed=None),
    ]
    figures = judging(cases, ["A"] * 5, JudgeChain([ByCall()]))
    row = figures["shop"]["A"]
    assert row["abstained"] == 1 / 4
    assert row["false_success_rate"] == 1 / 2
    assert row["balanced_accuracy"] == 3 / 4
    assert row["kappa"] is not None and round(row["kappa"], 3) == 0.4
    # Of four sessions two are right; by chance one failure and two successes meet three failures and one success.
    assert row["kappa_all"] == pytest.approx((2 / 4 - 5 / 16) / (1 - 5 / 16))


def test_who_never_dares_does_not_look_good(make_case: MakeCase) -> None:
    cases = [
        make_case(str(n), "ann", "cook", ("failure" if n % 2 else "success", None), failed=bool(n % 2))
        for n in range(4)
    ]
    cases += [make_case(str(n), "ann", "cook", ("?", None), failed=bool(n % 2)) for n in range(4, 40)]
    row = judging(cases, ["A"] * 40, JudgeChain([ByCall()]))["shop"]["A"]
    assert row["kappa"] == 1.0
    assert row["kappa_all"] is not None and row["kappa_all"] < 0.1


def test_a_judge_that_never_speaks_has_no_figures(make_case: MakeCase) -> None:
    figures = judging([make_case("1", "ann", "cook", ("?", None))], ["AT"], JudgeChain([ByCall()]))
    assert figures["shop"]["AT"] == {
        "kappa": None,
        "kappa_all": 0.0,
        "balanced_accuracy": None,
        "false_success_rate": None,
        "abstained": 1.0,
    }
