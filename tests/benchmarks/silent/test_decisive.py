"""Which call decides a failure, and which lines name it in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.silent.cases import Case, read_cases
from benchmarks.silent.decisive import Deciders, Deciding, Line
from fleetlore.errors import ConfigError
from tests.benchmarks.silent.made_shop import RULES, order, refund, session, write, wrong


def case(folder: Path, *calls: object, number: int = 1, **fields: object) -> tuple[Case, Deciding]:
    """A session that ended badly, among others that show what the tools do."""
    others = [
        session(8, True, order(8), refund(8, "gift", confirm=False, fee=0), refund(8, "late", confirm=False, fee=5)),
        session(9, True, order(9), refund(9)),
    ]
    made = session(number, False, *calls)  # type: ignore[arg-type]
    cases = read_cases(write(folder, [made, *others], [wrong(number, **fields)]))
    return cases[0], Deciders(cases).of(cases[0])


def line(text: str, place: int = 0, make: str = "") -> Line:
    return Line(place, text, 1.0, make)


def test_sessions_are_read_with_reward_and_failed_assertions(tmp_path: Path) -> None:
    found, _ = case(tmp_path, order(1), refund(1), total=3)
    assert (found.domain, found.well, [each.field for each in found.wrong]) == ("shop", False, ["total"])
    assert [(call.tool, call.looks, call.writes) for call in found.calls] == [
        ("get_order", True, False),
        ("process_refund", False, True),
    ]


def test_a_folder_without_failures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ended badly"):
        read_cases(write(tmp_path, [session(1, True, order(1))], []))


def test_previews_and_refused_calls_decide_nothing(tmp_path: Path) -> None:
    calls = (order(1), refund(1, confirm=False), refund(1, status="rejected"), refund(1, amount=25))
    _, deciding = case(tmp_path, *calls, refund_amount=20)
    assert deciding.place == 3
    assert deciding.tools == {"process_refund": {"amount"}}


def test_a_field_is_of_the_option_by_which_it_differs_in_the_log(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1, "late"), fee=0)
    assert deciding.tools == {"process_refund": {"reason"}}
    assert deciding.level([line("`process_refund` with `reason=late` ended badly")]) == "argument"
    assert deciding.level([line("`process_refund` with `amount=3` ended badly")]) == "tool"
    assert deciding.level([line("`get_order` with `reason=late`")]) == ""
    assert deciding.level([line("do not forget ORD-1")]) == "object"


def test_what_is_said_after_the_deciding_call_names_nothing(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1), order(1), fee=5)
    assert deciding.place == 1
    assert deciding.level([line("`process_refund`", place=1)]) == "tool"
    assert deciding.level([line("`process_refund`", place=2)]) == ""


def test_what_was_left_undone_is_decided_by_the_end(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), fee=5)
    assert deciding.place == 1
    assert deciding.tools.keys() == {"process_refund"}


def test_of_a_failure_without_assertions_the_last_change_decides(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1), refund(1), order(1))
    assert (deciding.place, deciding.records) == (2, frozenset())


@pytest.mark.parametrize(
    ("told", "beside"),
    [
        (line("warned"), True),
        (line("", make="get_rules(topic=refund)"), False),
        (line("", make="get_rules(topic=late)"), True),
        (line("", place=2, make="get_rules(topic=refund)"), True),
        (line("", make="process_refund(reason=late)"), True),
    ],
)
def test_a_line_is_beside_the_point_unless_the_session_went_on_to_do_it(
    tmp_path: Path, told: Line, beside: bool
) -> None:
    sessions = [session(1, True, order(1), RULES, refund(1)), session(2, False, refund(2, "late"))]
    late = ("get_rules", {"topic": "late"}, {})
    cases = read_cases(write(tmp_path, [*sessions, session(3, True, late)], [wrong(2, fee=5)]))
    assert Deciders(cases).is_beside(told, cases[0]) is beside
