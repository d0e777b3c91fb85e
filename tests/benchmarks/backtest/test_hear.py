from __future__ import annotations

import asyncio
from dataclasses import replace

from benchmarks.backtest.hear import advice_report, at_places
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from streams.offline.memory_pipeline import run_logs
from tests.streams.offline.test_memory_pipeline import session


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
    of_train = replace(run, calls=b"")
    report = advice_report(train, test, of_train, seed=0, hold_out=0.3, progress=said.append)
    assert set(report["advice"]["shop"]) == {"A", "P", "AP"}
    assert "learning from 6 sessions at other places" in said
    assert (report["advice"]["shop"]["P"]["calls"], report["advice"]["shop"]["AP"]["calls"]) == (6, 2)
    # Without the hold-out a test session is at a new place where its own is.
    new = advice_report(train[:3], test, of_train, seed=0, hold_out=None, progress=said.append)
    assert set(new["advice"]["shop"]) == {"A", "AT", "AP"}
