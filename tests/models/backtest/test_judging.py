from __future__ import annotations

from collections.abc import Callable

from fleetlore.wire.trajectory import Trajectory, Verdict
from models.backtest.cases import Case
from models.backtest.judging import judging
from models.judge.chain import JudgeChain

MakeCase = Callable[..., Case]


class ByCall:
    """Says what the last call says; silent where it says nothing."""

    version = "by-call-1"

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


def test_a_judge_that_never_speaks_has_no_figures(make_case: MakeCase) -> None:
    figures = judging([make_case("1", "ann", "cook", ("?", None))], ["AT"], JudgeChain([ByCall()]))
    assert figures == {
        "shop": {"AT": {"kappa": None, "balanced_accuracy": None, "false_success_rate": None, "abstained": 1.0}}
    }
