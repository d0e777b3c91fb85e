"""Rollouts that Codex wrote, by version, in which a model reads a file that is missing and one that is there."""

import json
from pathlib import Path
from typing import Any

from fleetlore.transcripts.read import read_files, read_sessions
from fleetlore.transcripts.session import SEEN, LoggedSession
from fleetlore.wire import events as ev
from tests.cpu import costs_less_than
from tests.fleetlore.transcripts.samples import DATA
from tests.rows import for_each

_MISSING = "cat: missing.txt: No such file or directory\n"


def sample(version: str) -> Path:
    return DATA / "codex" / f"codex-{version}.jsonl"


def calls_of(session: LoggedSession) -> list[dict[str, Any]]:
    return [data for kind, data in session.events if kind == "outcome"]


@for_each("version", *("0.45.0", "0.144.6"))
def test_commands_that_the_model_calls(version: str) -> None:
    [session] = read_sessions(sample(version))
    assert session.goal == "look" and not session.left_out and not session.unanswered
    *failed, worked = calls_of(session)
    assert {each[ev.TOOL] for each in calls_of(session)} == {"Bash"}
    assert {each[ev.ARGUMENTS]["command"] for each in failed} == {"cat missing.txt"}
    assert all(_MISSING in each[ev.ERROR_MESSAGE] for each in failed)
    assert worked[ev.ARGUMENTS] == {"command": "cat notes.txt"} and "the notes" in worked[ev.RESULT]


def test_commands_that_a_script_runs_are_told_from_each_other() -> None:
    [session] = read_sessions(sample("0.171.0"))
    found = [(each[ev.TOOL], each[ev.ARGUMENTS], each.get(ev.ERROR_MESSAGE)) for each in calls_of(session)]
    trace = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
    assert found[0] == ("Bash", {"command": "cat missing.txt"}, _MISSING)
    assert found[1] == ("Bash", {"command": "cat notes.txt"}, None)
    assert found[2] == (
        "Bash",
        {"command": "python3 -c 'import nomod'"},
        f"{trace}ModuleNotFoundError: No module named 'nomod'\n",
    )
    assert found[3][0] == "apply_patch" and str(found[3][2]).startswith("apply_patch verification failed: ")
    assert found[4][:2] == ("mcp__time__get_current_time", {"timezone": "Nowhere/City"})
    assert "Invalid timezone" in str(found[4][2])
    assert found[5] == (
        "exec", "const r = foo.bar();", "ReferenceError: foo is not defined\n    at exec_main.mjs:1:11"
    )  # fmt: skip
    assert found[6][0] == "apply_patch" and found[6][2] is None
    assert len(found) == 7 and not session.left_out


def test_how_a_scripts_calls_ended_is_not_guessed() -> None:
    [session] = read_files("codex", [sample("0.147.0")])
    assert session is not None and not calls_of(session)
    assert session.left_out == {"script whose calls are not logged": 2}


def test_runs_beside_scripts_without_an_end_are_read_in_linear_time(tmp_path: Path) -> None:
    script = {"type": "custom_tool_call", "name": "exec", "input": "tools.exec_command()"}
    run = {"type": "CommandExecution", "command": ["bash", "-lc", "ls"], "aggregated_output": "x"}
    payloads = [{**each, "id": f"{id}", "call_id": f"{id}"} for each in (script, run) for id in range(4_000)]
    rows = [{"timestamp": "2026-12-01T00:00:00Z", "type": "response_item", "payload": each} for each in payloads]
    (file := tmp_path / "rollout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert costs_less_than(0.5, lambda: list(read_files("codex", [file])))


def test_each_prompt_is_a_session(tmp_path: Path) -> None:
    again = sample("0.45.0").read_text().replace('"look"', '"look again"').replace("call_1", "call_9")
    (file := tmp_path / "rollout.jsonl").write_text(sample("0.45.0").read_text() + again)
    first, second = read_sessions(file)
    assert (first.goal, second.goal) == ("look", "look again")
    assert first.session != second.session and first.conversation == second.conversation
    assert first.session == read_sessions(sample("0.45.0"))[0].session


def test_the_copy_in_a_fork_counts_once(tmp_path: Path) -> None:
    """Its file begins with its own head, then the source's; the copied lines have the time of the copy."""
    rows = [json.loads(line) for line in sample("0.144.6").read_text().splitlines()]
    rows.insert(0, {**rows[0], "payload": {**rows[0]["payload"], "id": "the-fork"}})
    copy = tmp_path / "copy.jsonl"
    copy.write_text("".join(json.dumps({**row, "timestamp": "2026-12-01T00:00:00.000Z"}) + "\n" for row in rows))
    [session] = read_sessions(sample("0.144.6"))
    both = [each for each in read_files("codex", [sample("0.144.6"), copy]) if each is not None]
    assert [each.session for each in both] == [session.session] * 2
    assert both[1].conversation != both[0].conversation == session.conversation
    assert not both[1].events and both[1].left_out == {SEEN: len(session.events)}


def with_payload(payload: dict[str, Any], text: str) -> str:
    """The rollout with it twice before the first call."""
    line = json.dumps({"timestamp": "2026-12-01T00:00:00.000Z", "type": "response_item", "payload": payload}) + "\n"
    at = text.index("\n", text.index('"user_message"')) + 1
    return text[:at] + 2 * line + text[at:]


def test_sessions_that_begin_with_the_same_search_are_two(tmp_path: Path) -> None:
    """A search has no id."""
    search = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
    one = with_payload(search, sample("0.45.0").read_text())
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for file, call in zip(files, ("call_1", "call_9"), strict=True):
        file.write_text(one.replace("call_1", call))
    first, second = (each for each in read_files("codex", files) if each is not None)
    assert first.session != second.session and calls_of(first) == calls_of(second) != []


def test_a_message_without_a_type_costs_nothing_else(tmp_path: Path) -> None:
    (file := tmp_path / "rollout.jsonl").write_text(with_payload({"role": "assistant"}, sample("0.45.0").read_text()))
    assert [each and calls_of(each) for each in read_files("codex", [file])] == [
        calls_of(read_sessions(sample("0.45.0"))[0])
    ]


@for_each("line", *("{}", "[]", '{"type":"x","payload":null}', '{"type":"response_item","payload":[1]}', "no JSON"))
def test_an_unreadable_line_is_counted_and_costs_no_other(line: str, tmp_path: Path) -> None:
    lines = sample("0.171.0").read_text().splitlines()
    (file := tmp_path / "rollout.jsonl").write_text("\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    found = list(read_files("codex", [file]))
    assert found.count(None) == 1
    [session] = [each for each in found if each is not None]
    assert calls_of(session) == calls_of(read_sessions(sample("0.171.0"))[0])


def test_runs_that_a_person_declined_and_calls_without_a_result_are_left_out(tmp_path: Path) -> None:
    text = sample("0.171.0").read_text().replace('"status":"failed","aggregated', '"status":"declined","aggregated')
    cut = text.splitlines()[: text[: text.index('"call_6"')].count("\n") + 1]
    (file := tmp_path / "rollout.jsonl").write_text("\n".join(cut))
    [session] = read_sessions(file)
    assert session.left_out == {"call that was never made": 2} and session.unanswered == 1
    assert len(calls_of(session)) == 4
