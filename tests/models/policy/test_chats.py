"""Chats of judged sessions, from which a model may learn: their form, and what is left out."""

from typing import Any

import pytest

from fleetlore.wire.trajectory import CUT, Judgment, Step
from models.policy.pairs import preference_pairs, session_row
from tests.build import call, judgment

NO_COLUMN = "no such column: nme"
WRONG, RIGHT = "SELECT nme FROM cars WHERE id = 1", "SELECT name FROM cars WHERE id = 1"
SPOKEN = Step(sequence=0, role="assistant", result="I look at the names.")


def recovery(session: str = "s", **fields: Any) -> Judgment:
    steps = (SPOKEN, call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, "Beetle"))
    return judgment(*steps, **{"session": session, "agent": "a", "task": "cars", "goal": "Name of car 1?"} | fields)


ABOUT: dict[str, Any] = {"task": "cars", "goal": "Name of car 1?"}
STUCK = judgment(call("sql", WRONG, error=NO_COLUMN), session="stuck", label="failure", **ABOUT)


def test_a_session_is_its_messages_and_its_label() -> None:
    row = session_row(recovery())
    assert (row["session"], row["agent"], row["label"]) == ("s", "a", True)
    assert [each["role"] for each in row["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [row["messages"][place]["content"] for place in (1, 2, 4)] == ["I look at the names.", NO_COLUMN, "Beetle"]
    assert session_row(recovery(label="failure"))["label"] is False


def test_a_row_is_what_preference_trainers_read() -> None:
    row, *_ = [pair.row() for pair in preference_pairs([recovery(), STUCK], 1)]
    assert row["prompt"] == [{"role": "user", "content": "Name of car 1?"}]  # and not what the model said of its call
    sides = [row[side][0]["tool_calls"][0]["function"]["arguments"] for side in ("chosen", "rejected")]
    assert sides == [{"input": RIGHT}, {"input": WRONG}]


@pytest.mark.parametrize("less", ["make build || true", "make build 2>/dev/null", "make build --skip tests"])
def test_an_attempt_at_less_is_no_repair(less: str) -> None:
    """It works because it leaves out what failed, or hides it: no model should learn to prefer that."""
    failed = call("bash", "make build", error="make: *** No rule to make target 'build'. Stop.")
    stuck = judgment(failed, session="stuck", task="t", goal="g", label="failure")

    def repaired(by: str) -> Judgment:
        return judgment(failed, call("bash", by, "done"), session="s", task="t", goal="g")

    assert not preference_pairs([repaired(less), stuck], 1)
    assert preference_pairs([repaired("make all"), stuck], 1)


SPOILT = {
    "guarded": recovery(guard="no-deletes"),
    "incomplete": recovery(missing=2),
    "continued": recovery(ending="continued"),
    "part": recovery(part=1),
    "abstained": recovery(label="abstained"),
    "recalled": recovery(goal="[fleet-memory] Name of car 1?"),
    "advised": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, advice=("item1",)), **ABOUT),
    "cut": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT}{CUT}"), **ABOUT),
    "redacted": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT} -- [redacted:password]"), **ABOUT),
    "transient": judgment(
        call("sql", WRONG, error="connection timed out", transient=True), call("sql", RIGHT), **ABOUT
    ),
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_what_a_model_must_not_learn_is_left_out(spoilt: Judgment) -> None:
    assert preference_pairs([recovery(), STUCK], 1)
    assert not preference_pairs([spoilt, STUCK], 1)


def test_a_call_nested_too_deep_ends_no_export() -> None:
    deep = judgment(call("sql", '{"query":' + "[" * 300 + "]" * 300 + "}", "Beetle"), session="deep", goal="g")
    assert preference_pairs([deep, recovery(), STUCK], 1) and session_row(deep)["messages"]
