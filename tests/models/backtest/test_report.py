from __future__ import annotations

from fleetlore.fingerprint.names import FailureKind
from models.backtest.report import advice_rows, asked, known_errors
from tests.models.backtest.made import SILENT, call, heard, log

GONE = "KeyError: 'cars'"


def test_what_was_said_is_held_against_what_came() -> None:
    of = log(call("select * from cars", error=GONE), call("select * from makers"), call("submit"), call("select 1"))
    right = SILENT._replace(warned=True, named=FailureKind("x", ()), text="ten chars.", way_out="`makers`")
    wrong = SILENT._replace(warned=True, text="ten chars.")
    row = advice_rows([log(agent="b")], [heard(of, right, wrong, SILENT, SILENT)])["shop"]["A"]
    assert row == {
        "calls": 3,  # `submit` is no call
        "failed": 1 / 3,
        "warned": 2 / 3,
        "fail_warned": 0.5,
        "fail_unwarned": 0.0,
        "way_out_said": 1.0,
        "way_out": 1.0,
        "chars_call": 20 / 3,
        "chars_session": 20,
    }


def test_where_nothing_is_said_there_is_no_figure() -> None:
    of = log(call("select 1"), call("select * from cars", error="503 Service Unavailable"))
    assert [turn.place for turn, _ in asked([heard(of)])] == [0]  # a failure that passes by itself has no label
    row = advice_rows([], [heard(of)])["shop"]["S"]
    assert (row["fail_warned"], row["way_out_said"], row["way_out"], row["chars_session"]) == (None, None, None, 0)


def test_an_error_of_another_agent_is_one_that_could_be_known() -> None:
    ann = log(call("select * from cars", error=GONE), agent="ann")
    other = log(call("select * from bikes", error="KeyError: 'bikes'"), agent="ben")
    again = log(call("select 1 from cars", error=GONE), agent="ben")
    assert known_errors([ann], [other, again])["shop"] == {"family": 1.0, "class": 0.5, "exact": 0.5}
    assert known_errors([ann], [ann])["shop"] == {"family": 0.0, "class": 0.0, "exact": 0.0}  # its own
    assert known_errors([ann], [log(call("select 1"))])["shop"] == {"family": None, "class": None, "exact": None}
