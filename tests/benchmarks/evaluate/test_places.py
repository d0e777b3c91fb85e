from dataclasses import replace

from benchmarks.evaluate.places import at_places, places_of
from fleetlore.wire import events as ev
from tests.models.backtest.made import call, log
from tests.streams.offline.test_memory_pipeline import session


def about(task: str, database: str, *, tells: bool = True, agent: str = "a", table: str = "") -> list:
    error = f"Table '{database}.nothing' doesn't exist" if tells else "syntax error"
    name = table or f"{database}_things"
    calls = call("select * from nothing", error=error), call(f"SELECT id FROM {name}")
    return [log(*calls, session=f"{task} {agent}", task=task, agent=agent)]


def test_an_error_tells_the_database_and_tables_tell_it_of_the_others() -> None:
    logs = [*about("1", "shop"), *about("2", "bank"), *about("3", "bank", tells=False), *about("4", "zoo", tells=False)]
    places = places_of(logs)
    assert places == {("shop", "1"): "shop", ("shop", "2"): "bank", ("shop", "3"): "bank"} | (
        {("shop", "4"): places[("shop", "4")]} if ("shop", "4") in places else {}
    )
    assert places_of([log(call("from math import sqrt", tool="python"))]) == {}, "no error of it told a database"


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
