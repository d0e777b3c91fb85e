from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from models.backtest.report import Learned
from streams.offline.hear import advice_report, at_places, call_log, hear
from streams.offline.memory_pipeline import run_logs

GONE = "Table 'shop.cars' doesn't exist"


def session(agent: str, task: str, *calls: tuple[str, str | None]) -> LoggedSession:
    logged = LoggedSession(f"{agent}/{task}", agent, task, f"count {task}", "failure", 0.0, source="shop")
    logged.events.append(("message", {ev.ROLE: "user", ev.CONTENT: "please"}))
    for text, error in calls:
        data: dict[str, Any] = {ev.TOOL: "sql", ev.ARGUMENTS: text, ev.RESULT: None if error else "12"}
        logged.events.append(("outcome", data | ({ev.ERROR_MESSAGE: error} if error else {})))
    return logged


PAST = [session(agent, "t", ("select 1 from cars", GONE), ("select 1 from car_makers", None)) for agent in "abcd"]
NEW = [session(agent, "t", ("select 2 from cars", GONE), ("select 3 from car_makers", None)) for agent in "xy"]


def learned() -> Learned:
    run = asyncio.run(run_logs(PAST, seed=0, learn=True))
    return Learned(run.patterns, run.items, run.ended)


def test_an_agent_hears_before_each_call_and_after_each_failure() -> None:
    one, other = asyncio.run(hear(learned(), NEW))
    assert len(one.before) == 2 and set(one.after) == {0}
    assert one.log == call_log(NEW[0]) and one.log.calls[0].before == "please"
    assert one.before[0].warned and "'shop.cars'" in one.before[0].text
    # What got others past it is withheld from one session in twenty, drawn by the ids: of two, one is told.
    assert "car_makers" in "".join(each.text for heard in (one, other) for each in (heard.before[0], heard.after[0]))
    # Nothing is learned from a test session: the next one is warned of the same.
    assert [(each.warned, each.named, each.risk) for each in other.before] == [
        (each.warned, each.named, each.risk) for each in one.before
    ]


def test_a_fleet_that_knows_nothing_says_nothing() -> None:
    (said,) = asyncio.run(hear(Learned([], [], 0.0), NEW[:1]))
    assert said.characters == 0 and not any(each.warned for each in said.before)


def test_a_session_states_the_database_that_the_log_tells() -> None:
    one, other, third = at_places(
        [
            session("a", "t", ("select * from x", "Table 'shop.x' doesn't exist"), ("select * from y", None)),
            session("b", "u", ("select * from y", None)),
            replace(session("c", "t", ("select 1", None)), place="stated"),
        ]
    )
    assert (one.place, other.place, third.place) == ("shop", "shop", "stated")
    (_, started), *_ = one.all_events()
    assert started[ev.PLACE] == "shop"


def test_places_are_held_out_in_a_run_of_their_own() -> None:
    def at(database: str, agent: str) -> LoggedSession:
        calls = ("select * from x", f"Table '{database}.x' doesn't exist"), (f"select * from {database}_y", None)
        return session(agent, f"of {database}", *calls)

    train = [at(database, agent) for database in ("one", "two", "three") for agent in "abc"]
    test = [at(database, "z") for database in ("one", "two", "three")]
    said: list[str] = []
    run = asyncio.run(run_logs(train, seed=0, learn=True))
    of_train = Learned(run.patterns, run.items, run.ended)
    report = advice_report(train, test, of_train, seed=0, hold_out=0.3, progress=said.append)
    assert set(report["advice"]["shop"]) == {"A", "P", "AP"}
    assert "learning from 6 sessions at other places" in said
    assert (report["advice"]["shop"]["P"]["calls"], report["advice"]["shop"]["AP"]["calls"]) == (6, 2)
    # Without the hold-out a test session is at a new place where its own is.
    new = advice_report(train[:3], test, of_train, seed=0, hold_out=None, progress=said.append)
    assert set(new["advice"]["shop"]) == {"A", "AT", "AP"}
