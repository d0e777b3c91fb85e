from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.backtest.cases import Case
from benchmarks.foresight.retrieval import retrieval
from fleetlore.retrieval.encoder import StaticEncoder

MakeCase = Callable[..., Case]
NO_COLUMN = "no such column: 'name'"


@pytest.fixture(scope="module")
def encoder() -> StaticEncoder:
    return StaticEncoder()


def test_an_earlier_agents_failure_at_the_task_is_found(make_case: MakeCase, encoder: StaticEncoder) -> None:
    tasks = ["count the singers of each country", "sum the prices of all orders", "list the pets older than three"]
    train = [make_case(f"t{n}", "ann", task, (f"SELECT {task}", NO_COLUMN), goal=task) for n, task in enumerate(tasks)]
    test = [make_case("q", "ben", tasks[1], (f"SELECT price {tasks[1]}", NO_COLUMN), goal=tasks[1])]
    assert retrieval(train, test, ["A"], encoder)["shop"]["A"] == {
        "hit1": 1.0,
        "hit5": 1.0,
        "mrr": 1.0,
        "hit5_without_goal": 1.0,
        "covered": 1.0,
    }


def test_what_the_agent_itself_met_is_no_answer(make_case: MakeCase, encoder: StaticEncoder) -> None:
    train = [make_case("1", "ann", "cook", ("SELECT 1", NO_COLUMN))]
    row = retrieval(train, [make_case("2", "ann", "cook", ("SELECT 1", NO_COLUMN))], ["K"], encoder)["shop"]["K"]
    assert row == {"hit1": None, "hit5": None, "mrr": None, "hit5_without_goal": None, "covered": 0.0}


def test_an_earlier_test_session_is_an_answer_and_a_later_one_is_none(
    make_case: MakeCase, encoder: StaticEncoder
) -> None:
    train = [make_case("0", "ann", "bake", ("SELECT 1", None))]
    test = [
        make_case("1", "ben", "cook", ("SELECT 1", NO_COLUMN)),
        make_case("2", "eve", "cook", ("SELECT 1", NO_COLUMN)),
    ]
    assert retrieval(train, test, ["AT", "AT"], encoder)["shop"]["AT"]["covered"] == 0.5


def test_a_fault_that_passes_by_itself_is_no_question(make_case: MakeCase, encoder: StaticEncoder) -> None:
    test = [make_case("1", "ben", "cook", ("SELECT 1", "HTTP 503 Service Unavailable"))]
    assert retrieval([], test, ["S"], encoder)["shop"]["S"]["covered"] is None
