"""Datasets of judged sessions: which rows there are, what is left out, and that trainers' own types take them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import ConfigError
from fleetlore.wire.trajectory import CUT, Judgment, Step
from models.export.dataset import as_functions, tools_by_agent, write_dataset
from models.export.rows import AGENT_SHARE, Message, Row, _bounded, is_test
from tests.build import call, judgment

NO_COLUMN = "no such column: nme"
WRONG, RIGHT = "SELECT nme FROM cars WHERE id = 1", "SELECT name FROM cars WHERE id = 1"
SPOKEN = Step(sequence=0, role="assistant", result="I look at the names.")


def recovery(session: str = "s", agent: str = "a", **fields: Any) -> Judgment:
    steps = (SPOKEN, call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, "Beetle"))
    return judgment(*steps, **{"session": session, "agent": agent, "task": "cars", "goal": "Name of car 1?"} | fields)


def lines(path: Path) -> list[dict[str, Any]]:
    return [
        orjson.loads(line) for name in ("train", "test") for line in (path / f"{name}.jsonl").read_bytes().splitlines()
    ]


def test_a_call_that_worked_is_preferred_to_the_one_that_failed_before_it(tmp_path: Path) -> None:
    figures = write_dataset([recovery()], tmp_path / "data")
    (row,) = lines(tmp_path / "data")
    assert row["prompt"] == [{"role": "user", "content": "Name of car 1?"}]  # and not what the model said of its call
    chosen, rejected = (row[name][0]["tool_calls"][0]["function"] for name in ("chosen", "rejected"))
    assert (chosen["arguments"], rejected["arguments"]) == ({"input": RIGHT}, {"input": WRONG})
    (tool,) = orjson.loads(row["tools"])
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }
    assert figures["row_kinds"] == {"recovery": 1}
    assert orjson.loads((tmp_path / "data" / "sessions.json").read_bytes()) == {"agents": 1, "sessions": ["s"]}


@pytest.mark.parametrize("less", ["make build || true", "make build 2>/dev/null", "make build --skip tests"])
def test_an_attempt_at_less_is_no_repair(less: str, tmp_path: Path) -> None:
    """It works because it leaves out what failed, or hides it: no model should learn to prefer that."""
    failed = call("bash", "make build", error="make: *** No rule to make target 'build'. Stop.")
    hidden = judgment(failed, call("bash", less, "done"), session="s", task="t", goal="g")
    with pytest.raises(ConfigError, match="hold no pair"):
        write_dataset([hidden], tmp_path / "data")
    repaired = judgment(failed, call("bash", "make all", "done"), session="s", task="t", goal="g")
    write_dataset([repaired], tmp_path / "data")


@pytest.mark.parametrize("lacks", ["task", "goal"])
def test_sessions_of_which_nobody_knows_that_they_are_alike_make_no_pair(lacks: str, tmp_path: Path) -> None:
    about = {"task": "cars", "goal": "Name of car 1?"} | {lacks: ""}
    good = judgment(call("sql", "SELECT name FROM cars", "Beetle"), session="good", agent="a", **about)
    bad = judgment(call("sql", "SELECT x", error="no such column: x"), session="bad", label="failure", **about)
    with pytest.raises(ConfigError, match="hold no pair"):
        write_dataset([good, bad], tmp_path / "data")


def test_two_sessions_that_part_at_one_call_make_a_pair(tmp_path: Path) -> None:
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
    figures = write_dataset([good, bad, other], tmp_path / "data")
    (row,) = lines(tmp_path / "data")
    assert figures["row_kinds"] == {"contrast": 1} and figures["sessions"] == 2
    assert [message["role"] for message in row["prompt"]] == ["user", "assistant", "tool"]
    assert row["rejected"][0]["tool_calls"][0]["function"]["arguments"] == {"input": "SELECT x"}


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
def test_what_a_model_must_not_learn_is_left_out(spoilt: Judgment, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hold no pair"):
        write_dataset([spoilt], tmp_path / "data")


def test_the_card_counts_what_is_left_out(tmp_path: Path) -> None:
    figures = write_dataset([recovery(), recovery("t", guard="no-deletes")], tmp_path / "data")
    assert figures["sessions_left_out"] == {"guarded": 1}
    assert (
        "| sessions left out: broke a rule that the environment guards | 1 |"
        in (tmp_path / "data/README.md").read_text()
    )


def test_identities_of_end_users_are_replaced_alike_in_prompt_and_call(tmp_path: Path) -> None:
    asked = {"goal": "Cancel the order of ada@example.org", "task": "cancel"}
    steps = (
        call("find", '{"email": "ada@example.org", "kind": "nme"}', error="unknown kind 'nme'"),
        call("find", '{"email": "ada@example.org", "kind": "name"}', "found"),
    )
    write_dataset([judgment(*steps, **asked)], tmp_path / "data")
    text = (tmp_path / "data/train.jsonl").read_text() + (tmp_path / "data/test.jsonl").read_text()
    assert "ada@" not in text and text.count("<email>") == 3


def test_tools_are_described_by_the_calls_that_worked() -> None:
    steps = (
        call("find", '{"id": 1}'),
        call("find", '{"id": 1.5, "parts": ["name"]}'),
        call("find", '{"nme": 1}', error="unknown argument nme"),
        call("list"),
    )
    (find, listed) = tools_by_agent([judgment(*steps, agent="a").trajectory])["a"]
    properties = {"id": {"type": "number"}, "parts": {"type": "array", "items": {"type": "string"}}}
    assert find["function"]["parameters"] == {"type": "object", "properties": properties, "required": ["id"]}
    assert listed["function"] == {"name": "list", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "defined",
    [
        {"type": "function", "function": {"name": "find", "description": "Look", "parameters": {"required": ["id"]}}},
        {"type": "function", "name": "find", "description": "Look", "parameters": {"required": ["id"]}},
        {"name": "find", "description": "Look", "input_schema": {"required": ["id"]}},
        {"name": "find", "description": "Look", "inputSchema": {"required": ["id"]}, "annotations": {"title": "x"}},
    ],
    ids=["chat", "responses", "anthropic", "mcp"],
)
def test_definitions_of_other_apis_are_rewritten(defined: dict[str, Any]) -> None:
    (tool,) = as_functions([defined, {"type": "web_search"}])
    parameters = {"type": "object", "properties": {}, "required": ["id"]}
    assert tool == {
        "type": "function",
        "function": {"name": "find", "description": "Look", "parameters": parameters},
    }


@pytest.mark.parametrize(
    "odd",
    [{"function": "find"}, {"function": None, "name": "find"}, {"name": 5}, {"name": ""}, {"description": "no name"}],
)
def test_what_an_agent_defined_oddly_ends_no_export(odd: dict[str, Any]) -> None:
    assert as_functions([odd]) == []
    (tool,) = as_functions([{"name": "find", "parameters": "id", "input_schema": {"required": ["id"]}}])
    assert tool["function"]["parameters"]["required"] == ["id"]


def test_a_call_nested_too_deep_ends_no_export(tmp_path: Path) -> None:
    deep = judgment(call("sql", '{"query":' + "[" * 300 + "]" * 300 + "}", "Beetle"), session="deep", goal="g")
    write_dataset([deep, recovery()], tmp_path / "data")
    assert len(lines(tmp_path / "data")) == 1


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigError, match="not an empty folder"):
        write_dataset([recovery()], tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_the_rows_are_a_function_of_the_set_of_sessions(tmp_path: Path) -> None:
    sessions = [recovery(f"s{n}", f"a{n % 4}", goal=f"Name of car {n}?", task=f"t{n}") for n in range(40)]
    for name in ("one", "two"):
        write_dataset(sessions, tmp_path / name)
        random.Random(1).shuffle(sessions)
    assert lines(tmp_path / "one") == lines(tmp_path / "two")


def row(agent: str, task: str, session: str) -> Row:
    return Row("recovery", agent, task, (session,), "", (), Message("assistant", ""), Message("assistant", ""))


def test_no_task_is_on_both_sides_and_a_tenth_of_them_is_for_testing() -> None:
    sides = {f"t{task}": {is_test(row("a", f"t{task}", f"s{task}-{n}")) for n in range(20)} for task in range(500)}
    assert all(len(side) == 1 for side in sides.values())
    assert 30 < sum(True in side for side in sides.values()) < 75


@given(st.lists(st.integers(0, 11), min_size=1, max_size=300))
def test_no_agent_gives_more_than_its_share(agents: list[int]) -> None:
    rows = [row(f"a{agent}", "t", str(n)) for n, agent in enumerate(agents)]
    kept = _bounded(rows)
    counts = {row.agent: sum(other.agent == row.agent for other in kept) for row in kept}
    assert counts.keys() == {row.agent for row in rows}
    share = max(AGENT_SHARE, min(1.0, 2 / len(counts)))
    assert max(counts.values()) <= max(1, share * len(kept))
