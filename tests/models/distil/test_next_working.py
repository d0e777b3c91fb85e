from __future__ import annotations

from typing import Any

import pytest

from fleetlore.calls.failed_call import FailureWords
from fleetlore.testing import sessions
from fleetlore.testing.sessions import call
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.distiller import distil
from models.memory.item_state import ItemState

NO_TABLE = call("sql", "SELECT count(*) FROM cars", error="Table 'car_1.cars' doesn't exist")
NO_NAME = call("python", "x = symbols('x')\nprint(x)", error="NameError: name 'symbols' is not defined")
LONG = """from sympy import symbols
total = sum(range(12))
z = symbols('zeta')
for each in range(total):
    print(each, z)"""


def judgment(*steps: Step, **fields: Any) -> Judgment:
    values: dict[str, Any] = {"session": "s1", "agent": "a1", "goal": "a sum", "ended": 5.0}
    return sessions.judgment(*steps, label="abstained", source="none", **(values | fields))


def test_what_came_with_the_next_call_that_worked_is_found_by_likeness_alone() -> None:
    (found,) = distil(judgment(NO_NAME, call("python", LONG, "0 zeta")))
    assert (found.kind, found.pattern, found.call) == ("recovery", None, None)
    assert FailureWords.from_text(found.near) is not None
    change = found.content.splitlines()[-1]
    # What brings the name that was missing stands first; a literal is nobody else's.
    assert change.startswith("Change: add `from sympy import symbols`")
    assert "zeta" not in change


def test_another_call_altogether_is_said_as_that() -> None:
    (found,) = distil(judgment(NO_TABLE, call("sql", "SHOW TABLES", "cars_data, makers")))
    assert found.content.endswith("Change: call `SHOW TABLES`")


def test_sessions_that_looked_the_same_up_back_one_item() -> None:
    state = ItemState()
    for name in "ab":
        error = f"Table 'shop.{name}_table' doesn't exist"
        failed = call("sql", f"SELECT id FROM {name}_table", error=error)
        looked_up = call("sql", "SHOW TABLES", "cars")
        (found,) = distil(judgment(failed, looked_up, session=name, agent=name))
        state.merge(found)
    item = state.to_item()
    assert item is not None and (item.agents, item.support, len(item.near)) == (2, 2, 2)


@pytest.mark.parametrize(
    "steps",
    [
        (NO_TABLE, call("sql", "SELECT count(*) FROM cars_data", "[(406,)]")),  # a better recovery
        (NO_TABLE, call("sql", "SELECT count(*) FROM cars", "[(406,)]")),
        (NO_TABLE, call("sql", "SHOW TABLES", error="denied")),
        (call("submit", "London", error="no such city: 'London'"), call("submit", "Paris", "right")),
        (call("get", '{"id": "a"}', error="no such user 'a'"), call("get", '{"id": "b", "name": "Ann"}', "found")),
        (call("sh", "make test lint", error="lint: 3 errors"), call("sh", "make check || true; echo done", "done")),
    ],
)
def test_what_is_not_told(steps: tuple[Step, ...]) -> None:
    assert not [each for each in distil(judgment(*steps)) if each.near and each.pattern is None]
