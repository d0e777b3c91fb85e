from __future__ import annotations

from models.backtest.report import hit_rate, ways_out, words
from tests.models.backtest.made import SILENT, call, heard, log

GONE = "no such table: cars"


def test_a_way_out_is_the_next_call_of_the_tool_that_worked_with_words_not_seen() -> None:
    of = log(
        call("select * from cars", error=GONE),
        call("select * from car", error="no such table: car"),
        call("ls", tool="bash"),
        call("select * from car_makers"),
        call("select * from other", error="no such table: other"),
        call("select * from cars, car_makers"),  # nothing new
    )
    told = {0: SILENT._replace(way_out="`cars` -> `car_makers`"), 1: SILENT._replace(way_out="look")}
    (way_out,) = ways_out(heard(of, after=told))
    # What two failures led to counts once, for the first of them.
    assert way_out.new == {"car_makers"} and way_out.told == "`cars` -> `car_makers`"
    assert hit_rate([way_out]) == 1.0


def test_what_was_told_before_the_call_counts_where_nothing_is_told_after_it() -> None:
    of = log(call("select * from cars", error=GONE), call("select * from car_makers"))
    (way_out,) = ways_out(heard(of, SILENT._replace(way_out="`car_makers`")))
    assert way_out.told == "`car_makers`"


def test_what_the_session_has_seen_is_nothing_new() -> None:
    of = log(call("select * from cars", error=f"{GONE}; known: car_makers"), call("select * from car_makers"))
    assert list(ways_out(heard(of))) == []


def test_a_passing_fault_needs_no_way_out() -> None:
    of = log(call("select * from cars", error="503 Service Unavailable"), call("select * from car_makers"))
    assert list(ways_out(heard(of))) == []


def test_words_are_names_and_the_parts_of_dotted_ones() -> None:
    assert words("SELECT Car_Makers.Id, x FROM t1 ON 'Ford'") == {
        "select",
        "car_makers",
        "id",
        "from",
        "t1",
        "on",
        "ford",
    }


def test_silence_is_no_miss() -> None:
    of = log(call("select * from cars", error=GONE), call("select * from car_makers"))
    (told,) = ways_out(heard(of, after={0: SILENT._replace(way_out="`car_makers`")}))
    quiet = told._replace(told="")
    assert hit_rate([told, quiet]) == 1.0 and hit_rate([quiet]) is None
