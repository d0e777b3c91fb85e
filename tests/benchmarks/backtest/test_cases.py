from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from benchmarks.backtest.cases import Case, case_of
from fleetlore.wire.trajectory import Feedback

MakeCase = Callable[..., Case]


def test_what_only_the_end_tells_is_taken_out(make_case: MakeCase) -> None:
    session = make_case("1", "ann", "cook", ("SELECT 1", None), ("SELECT 2", None)).trajectory
    feedback = Feedback(session="1", label="success", time=9.0, by="eve")
    won = replace(session, ending="success", reward=1.0, events=12, ended=99.0, feedback=feedback)
    lost = replace(session, ending="failure", reward=0.0, events=7, ended=50.0)
    assert case_of(won, "shop").trajectory == case_of(lost, "shop").trajectory
    assert (case_of(won, "shop").failed, case_of(lost, "shop").failed) == (False, True)
    assert case_of(replace(session, ending="unknown"), "shop").failed is None


def test_a_part_of_a_long_session_is_known_to_be_one(make_case: MakeCase) -> None:
    session = replace(make_case("1", "ann", "cook").trajectory, ending="continued")
    assert case_of(session, "shop").trajectory.ending == "continued"
