"""Cases of sessions, and which of them answer each other."""

from models.adapter.pairs import Memory, cases_of
from tests.build import call, trajectory

FAILED = call("sql", "SELECT name FROM car", "", "no such table: car")
WORKED = call("sql", "SELECT name FROM makers", "3 rows")


def case(*steps, **fields):  # type: ignore[no-untyped-def]
    (found,) = cases_of(trajectory(*steps, **fields))
    return found


def test_a_case_is_a_failed_call_and_the_next_of_its_tool_that_worked() -> None:
    found = case(FAILED, call("ls", "makers2"), WORKED, task="t")
    assert (found.tool, found.task, found.lacked) == ("sql", "t", {"makers"})
    assert "no such table: car" in found.query and "makers" not in found.query
    assert "no such table: car" in found.answer and "makers" in found.answer


def test_what_the_session_had_met_is_nothing_that_it_lacked() -> None:
    for met in (
        trajectory(FAILED, WORKED, goal="count the makers"),
        trajectory(call("ls", "", "cars makers"), FAILED, WORKED),
        trajectory(FAILED, call("sql", "SELECT name FROM car WHERE 1", "2 rows")),
    ):
        assert list(cases_of(met)) == []


def test_a_failure_that_passes_by_itself_makes_no_case() -> None:
    assert list(cases_of(trajectory(call("sql", "SELECT 1", "", "503 Service Unavailable"), WORKED))) == []


def test_a_working_call_is_the_way_out_of_one_failure_alone() -> None:
    assert len(list(cases_of(trajectory(FAILED, call("sql", "x", "", "no such table: x"), WORKED)))) == 1


def test_an_answer_is_of_another_session_and_task_and_holds_what_was_lacking() -> None:
    asking = case(FAILED, WORKED, session="s1", task="t1")
    others = [
        case(FAILED, WORKED, session="s1", task="t1"),
        case(FAILED, WORKED, session="s2", task="t1"),
        case(FAILED, WORKED, session="s3", task="t3"),
        case(FAILED, call("sql", "SELECT * FROM owners"), session="s4", task="t4"),
        case(call("run", "x", "", "no x"), call("run", "makers"), session="s5", task="t5"),
    ]
    memory = Memory(others)
    assert memory.holding(asking) == {0, 1, 2}
    assert memory.answers(asking) == {2}
    assert Memory([]).answers(asking) == set()
