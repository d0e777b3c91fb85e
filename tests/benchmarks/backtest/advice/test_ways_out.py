from __future__ import annotations

from benchmarks.backtest.advice.ways_out import (
    foreign_literals,
    names_solution,
    said_of_failures,
    shuffled_hit_rate,
    solutions,
)
from models.backtest.report import hit_rate, ways_out
from tests.models.backtest.made import SILENT, call, heard, log

GONE = "no such table: cars"


def test_what_was_said_of_a_failure_counts_for_its_next_rounds() -> None:
    of = log(
        call("select * from cars", error=GONE),
        call("select * from other", error="no such table: other"),
        call("select * from cars", error=GONE),
        call("select * from cars", error="503 Service Unavailable"),
    )
    told = {0: SILENT._replace(text="known here: car_makers")}
    assert list(said_of_failures(heard(of, after=told))) == [
        (True, False, False),
        (False, False, False),
        (False, True, True),
    ]


def test_silence_is_no_miss_and_the_shuffled_control_knows_what_is_always_said() -> None:
    cases = []
    for name in ("alpha", "beta", "gamma", "delta"):
        of = log(call("select * from x1", error=GONE), call(f"select * from {name}"))
        cases += ways_out(heard(of, after={0: SILENT._replace(way_out=f"try {name}")}))
    quiet = [each._replace(told="") for each in cases]
    assert hit_rate([*cases, *quiet]) == 1.0 and hit_rate(quiet) is None
    shuffled = shuffled_hit_rate(cases, seed=0)
    assert shuffled is not None and 0.1 < shuffled < 0.45
    assert shuffled_hit_rate([each._replace(told="alpha beta gamma delta") for each in cases], seed=0) == 1.0


def test_a_literal_is_foreign_unless_the_session_or_two_other_agents_hold_it() -> None:
    def said(text: str) -> list[bool]:
        of = log(call("find 'kim'", error="no such user", before="I am mei_li_11"), call("done"), agent="a")
        told = SILENT._replace(way_out=text, text=text)
        train = [
            log(call("find 'zip 1'"), agent="b"),
            log(call("find 'zip 1'"), agent="c"),
            log(call("find 'zip 2'"), agent="b"),
            log(call("find 'zip 2'"), agent="a"),
        ]
        (found,) = foreign_literals([heard(of, after={0: told})], train)
        assert found.ever == any(found.ways_out)
        return found.ways_out

    assert said("ask for mei_li_11 or 'kim'") == [False]
    assert said("look for 'zip 1'") == [False]
    assert said("look for 'zip 2'") == [True]  # the other is the agent itself
    assert said("look for yusuf_rossi_9620") == [True]


def test_what_is_told_before_a_call_counts_for_the_session_alone() -> None:
    of = log(call("find 'kim'"))
    (found,) = foreign_literals([heard(of, SILENT._replace(text="ask yusuf_rossi_9620"))], [])
    assert found.ever and found.ways_out == []


def test_the_start_names_the_last_call_of_a_session_that_solved_the_task() -> None:
    solved = solutions(
        [
            log(call("select name from car_makers"), call("submit"), session="one", failed=False),
            log(call("select 1 from car_names"), session="two", failed=True),
            log(call("7"), session="three", failed=False),
        ]
    )
    told = SILENT._replace(text="What worked: sql(SELECT name  FROM car_makers)")
    assert names_solution(heard(log(session="new"), start=told), solved)
    assert not names_solution(heard(log(session="one"), start=told), solved)  # its own
    assert not names_solution(heard(log(session="new", task="other"), start=told), solved)
    assert not names_solution(heard(log(session="new"), start=SILENT._replace(text="7 of 8")), solved)
