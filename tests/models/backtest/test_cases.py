from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from fleetlore.wire.trajectory import Feedback
from models.backtest.cases import Case, case_of, slices_of

MakeCase = Callable[..., Case]


def test_each_session_is_sorted_into_its_slice(make_case: MakeCase) -> None:
    train = [make_case("1", "ann", "cook"), make_case("2", "ben", "bake")]
    test = [
        make_case("3", "new", "cook"),
        make_case("4", "ann", "roast"),
        make_case("5", "new", "roast"),
        make_case("6", "ann", "bake"),
        make_case("7", "ann", "cook", source="elsewhere"),
    ]
    assert slices_of(train, test) == ["A", "T", "AT", "K", "S"]


def test_an_agent_of_another_source_is_a_new_agent(make_case: MakeCase) -> None:
    train = [make_case("1", "ann", "cook"), make_case("2", "ben", "cook", source="elsewhere")]
    assert slices_of(train, [make_case("3", "ann", "cook", source="elsewhere")]) == ["A"]


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
