from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.backtest.advice.places import guessed_right, places_of, slices_by_place, split_by_place
from tests.models.backtest.made import call, log

DEV = Path(__file__).parents[5] / "shared" / "data" / "dev"


def about(task: str, database: str, *, tells: bool = True, agent: str = "a", table: str = "") -> list:  # type: ignore[type-arg]
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
    assert guessed_right([*logs, *about("5", "bank")])[1] == 3


def test_a_tool_that_never_told_a_database_has_no_places() -> None:
    assert places_of([log(call("from math import sqrt", tool="python"))]) == {}


def test_sessions_at_held_places_are_not_learned_from() -> None:
    logs = [each for task in range(10) for agent in "ab" for each in about(str(task), f"db{task % 5}", agent=agent)]
    train, test = [each for each in logs if each.agent == "a"], [each for each in logs if each.agent == "b"]
    places = places_of(logs)
    outside, inside = split_by_place(train, test, places, seed=1, share=0.2)
    held = {places[each.source, each.task] for each in inside}
    assert len(held) == 1 and not held & {places[each.source, each.task] for each in outside}
    assert len(inside) == 4 and len(outside) == 8
    assert sorted(slices_by_place(outside, inside, places)) == [("AP",), ("AP",), ("P",), ("P",)]
    assert slices_by_place(train, test, places) == [()] * 10  # all their places are known


@pytest.mark.real_data
@pytest.mark.skipif(not DEV.is_dir(), reason=f"the folder of real trajectories is missing: {DEV}")
def test_databases_of_real_logs(capsys: pytest.CaptureFixture[str]) -> None:
    from fleetlore.transcripts.read import read_sessions
    from streams.offline.hear import call_log

    logs = [call_log(each) for each in read_sessions(DEV / "intercode")]
    right, total = guessed_right(logs)
    with capsys.disabled():
        print(f"\ndatabases, leave one out: {right} of {total} right ({right / total:.3f})")
    assert total > 500 and right / total > 0.98
    assert len(places_of(logs)) == 675
