from itertools import permutations
from typing import Any

from fleetlore.wire.lore import INSTEAD_OF, MemoryItem
from fleetlore.wire.trajectory import Judgment, Step
from tests import build as sessions
from tests.build import call
from tests.candidates import items_of

NO_TABLE = "Table 'shop.cars' doesn't exist"
LOOK_UP = call("sql", "SHOW TABLES", "makers, cars_data, owners")
IMPORT = "NameError: name 'math' is not defined"


def judgment(*steps: Step, **fields: Any) -> Judgment:
    values: dict[str, Any] = {"session": "s1", "agent": "a1", "goal": "g1", "ended": 5.0}
    return sessions.judgment(*steps, label="abstained", source="none", **(values | fields))


def query(number: int, *, table: str = "cars_data") -> tuple[Step, ...]:
    failed = call("sql", f"SELECT colour_{number} FROM cars WHERE a{number} = b{number}", error=NO_TABLE)
    return failed, LOOK_UP, call("sql", f"SELECT max(price), owner FROM {table} GROUP BY x{number}", "[(1,)]")


def looked_up(*judged: Judgment) -> list[MemoryItem]:
    return items_of(*judged, among=lambda candidate: INSTEAD_OF in candidate.title)


def of_session(number: int, *steps: Step) -> Judgment:
    return judgment(*steps, session=f"s{number}", agent=f"a{number}", goal=f"g{number}")


def test_names_that_several_goals_looked_up_are_said_instead_of_the_rejected_one() -> None:
    judged = [of_session(number, *query(number)) for number in range(3)]
    judged[2] = of_session(2, *query(2), call("sql", "SELECT price FROM makers", "[(2,)]"))
    (item,) = looked_up(*judged)
    assert (item.kind, item.agents, item.goals, item.delayed) == ("recovery", 3, 3, 3)
    assert item.title == f"sql: {NO_TABLE} — instead: `cars_data`"
    assert item.content.splitlines()[-1] == "Worked instead: `cars_data`"
    assert (item.was, item.now) == (("cars",), ("cars_data",))
    assert all(looked_up(*order) == [item] for order in permutations(judged))


def test_names_like_the_rejected_one_are_said_without_those_of_the_tasks() -> None:
    shown = call("sql", "DESC has_pet", "age, has_pet, student, stuid")

    def session(number: int, columns: str, table: str = "student") -> Judgment:
        failed = call("sql", f"SELECT x{number} FROM students", error="Table 'pets.students' doesn't exist")
        worked = call("sql", f"SELECT {columns} FROM {table} JOIN has_pet WHERE y{number} = 1", "[(1,)]")
        return of_session(number, failed, shown, worked)

    (item,) = looked_up(*(session(number, "age") for number in range(3)))
    assert item.title.endswith("— instead: `student`")
    # Names that are nothing like it are about the task.
    assert not looked_up(*(session(number, "max(1)" if number > 1 else "age", "has_pet") for number in range(4)))


def test_an_error_that_is_said_everywhere_is_told_with_what_stood_beside() -> None:
    def session(number: int, table: str) -> Judgment:
        error = "Unknown column 'type' in 'field list'"
        failed = call("sql", f"SELECT type, a{number} FROM {table} ORDER BY b{number}", error=error)
        shown = call("sql", f"DESC {table}", "id, pettype, weight")
        return of_session(
            number, failed, shown, call("sql", f"SELECT pettype FROM {table} WHERE c{number} > 1", "[(1,)]")
        )

    (item,) = looked_up(session(0, "pets"), session(1, "pets"))
    assert item.title.endswith("— instead beside `pets`: `pettype`")
    assert looked_up(session(0, "pets"), session(1, "dogs")) == []

    def of_field(number: int) -> Judgment:
        steps = session(number, "pets").trajectory.calls
        return of_session(
            number,
            *(call("sql", f'{{"column": "{each.arguments}"}}', each.result, each.error_message) for each in steps),
        )

    (item,) = looked_up(of_field(0), of_field(1))
    assert item.title.endswith("— instead beside `pets`: `pettype`"), "each call has a column"


def test_one_goal_says_nothing_and_each_name_has_the_evidence_of_those_who_used_it() -> None:
    assert looked_up(of_session(1, *query(1))) == []
    tables = ["cars_data", "makers", "owners", "cars_data", "makers"]
    found = looked_up(*(of_session(n, *query(n, table=table)) for n, table in enumerate(tables)))
    assert {(item.now, item.agents) for item in found} == {(("cars_data",), 2), (("makers",), 2)}


def test_what_the_model_brought_by_itself_was_not_looked_up() -> None:
    steps = (call("python", "print(math.pi)", error=IMPORT), call("python", "import math\nprint(math.pi)", "3.14"))
    assert looked_up(*(of_session(n, *steps) for n in range(3))) == []


def test_what_agents_had_to_find_out_ranks_before_what_was_no_news_and_what_is_of_one_task() -> None:
    made: dict[str, Any] = {"tenant": "default", "description": "", "content": "c", "when": ""}
    news = MemoryItem(id="a", kind="recovery", title="n", agents=2, support=9, goals=5, delayed=2, **made)
    known = MemoryItem(id="b", kind="recovery", title="k", agents=9, support=90, goals=30, delayed=1, **made)
    task = MemoryItem(id="c", kind="strategy", title="t", agents=30, support=30, goals=1, delayed=30, **made)
    best = sorted([task, known, news], key=MemoryItem.worth, reverse=True)
    assert [each.id for each in best] == ["a", "b", "c"]
    assert MemoryItem.worth(task)[0] == 0.0
    contradicted = MemoryItem(
        id="e", kind="recovery", title="n", agents=2, support=9, against=9, goals=5, delayed=2, **made
    )
    assert contradicted.worth() < known.worth()
