"""Training data of judged sessions: which pairs there are, what is left out, and in which form they are written."""

import random
from typing import Any

import pytest

from fleetlore.wire.trajectory import CUT, Judgment, Step
from models.distil.export import pairs_of, session_row
from tests.build import call, judgment

NO_COLUMN = "no such column: nme"
WRONG, RIGHT = "SELECT nme FROM cars WHERE id = 1", "SELECT name FROM cars WHERE id = 1"
SPOKEN = Step(sequence=0, role="assistant", result="I look at the names.")


def recovery(session: str = "s", agent: str = "a", **fields: Any) -> Judgment:
    steps = (SPOKEN, call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, "Beetle"))
    return judgment(*steps, **{"session": session, "agent": agent, "task": "cars", "goal": "Name of car 1?"} | fields)


def arguments(row: dict[str, Any], side: str) -> Any:
    return row[side][0]["tool_calls"][0]["function"]["arguments"]


def test_a_call_that_worked_is_preferred_to_the_one_that_failed_before_it() -> None:
    (row,) = pairs_of([recovery()])
    assert row["prompt"] == [{"role": "user", "content": "Name of car 1?"}]  # and not what the model said of its call
    assert (arguments(row, "chosen"), arguments(row, "rejected")) == ({"input": RIGHT}, {"input": WRONG})


def test_a_session_is_its_messages_and_its_label() -> None:
    row = session_row(recovery())
    assert (row["session"], row["agent"], row["label"]) == ("s", "a", True)
    assert [each["role"] for each in row["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [row["messages"][place]["content"] for place in (1, 2, 4)] == ["I look at the names.", NO_COLUMN, "Beetle"]
    assert session_row(recovery(label="failure"))["label"] is False


@pytest.mark.parametrize("less", ["make build || true", "make build 2>/dev/null", "make build --skip tests"])
def test_an_attempt_at_less_is_no_repair(less: str) -> None:
    """It works because it leaves out what failed, or hides it: no model should learn to prefer that."""
    failed = call("bash", "make build", error="make: *** No rule to make target 'build'. Stop.")
    assert not pairs_of([judgment(failed, call("bash", less, "done"), session="s", task="t", goal="g")])
    assert pairs_of([judgment(failed, call("bash", "make all", "done"), session="s", task="t", goal="g")])


@pytest.mark.parametrize("lacks", ["task", "goal"])
def test_sessions_of_which_nobody_knows_that_they_are_alike_make_no_pair(lacks: str) -> None:
    about = {"task": "cars", "goal": "Name of car 1?"} | {lacks: ""}
    good = judgment(call("sql", "SELECT name FROM cars", "Beetle"), session="good", agent="a", **about)
    bad = judgment(call("sql", "SELECT x", error="no such column: x"), session="bad", label="failure", **about)
    assert not pairs_of([good, bad])


def test_two_sessions_that_part_at_one_call_make_a_pair() -> None:
    looked = call("sql", "SHOW TABLES", "cars")
    common: dict[str, Any] = {"task": "cars", "goal": "Name of car 1?"}
    good = judgment(looked, call("sql", "SELECT name FROM cars", "Beetle"), session="good", agent="a", **common)
    bad = judgment(
        looked, call("sql", "SELECT x", error="no such column: x"), session="bad", agent="b", label="failure", **common
    )
    # Another result of the same call is another state.
    other = judgment(
        call("sql", "SHOW TABLES", "ships"),
        call("sql", "SELECT y", error="no such column: y"),
        session="other",
        agent="c",
        label="failure",
        **common,
    )
    (row,) = pairs_of([good, bad, other])
    assert row["session"] == "good"
    assert [message["role"] for message in row["prompt"]] == ["user", "assistant", "tool"]
    assert arguments(row, "rejected") == {"input": "SELECT x"}


@pytest.mark.parametrize(
    "spoilt",
    [
        recovery(guard="no-deletes"),
        recovery(missing=2),
        recovery(ending="continued"),
        recovery(part=1),
        recovery(label="abstained"),
        recovery(goal="[fleet-memory] Name of car 1?"),
        judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, advice=("item1",))),
        judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT}{CUT}")),
        judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT} -- [redacted:password]")),
        judgment(call("sql", WRONG, error="connection timed out", transient=True), call("sql", RIGHT)),
        judgment(call("sql", WRONG, error=NO_COLUMN), call("list_tables"), call("sql", RIGHT)),
        judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT), label="failure"),
    ],
    ids=[
        "guarded",
        "incomplete",
        "continued",
        "part",
        "abstained",
        "recalled",
        "advised",
        "cut",
        "redacted",
        "transient",
        "looked-up",
        "failed",
    ],
)
def test_what_a_model_must_not_learn_is_left_out(spoilt: Judgment) -> None:
    assert not pairs_of([spoilt])


def test_identities_of_end_users_are_replaced_alike_in_prompt_and_call() -> None:
    asked = {"goal": "Cancel the order of ada@example.org", "task": "cancel"}
    steps = (
        call("find", '{"email": "ada@example.org", "kind": "nme"}', error="unknown kind 'nme'"),
        call("find", '{"email": "ada@example.org", "kind": "name"}', "found"),
    )
    text = str(pairs_of([judgment(*steps, **asked)]))
    assert "ada@" not in text and text.count("<email>") == 3


def test_a_call_nested_too_deep_ends_no_export() -> None:
    deep = judgment(call("sql", '{"query":' + "[" * 300 + "]" * 300 + "}", "Beetle"), session="deep", goal="g")
    assert len(pairs_of([deep, recovery()])) == 1 and session_row(deep)["messages"]


def test_the_rows_are_a_function_of_the_set_of_sessions() -> None:
    sessions = [recovery(f"s{n}", f"a{n % 4}", goal=f"Name of car {n}?", task=f"t{n}") for n in range(40)]
    rows = pairs_of(sessions)
    random.Random(1).shuffle(sessions)
    assert pairs_of(sessions) == rows and len(rows) == 40
