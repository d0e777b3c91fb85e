"""Logs in every form are read whole: what is counted, and that nothing is lost in silence."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.formats import DAMAGES, FOLDER, count_of, run
from benchmarks.runs import read_runs
from fleetlore.transcripts.read import read_files
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "look at the house"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL | {"id": "b"}]},
    {"role": "tool", "tool_call_id": "a", "content": "the one"},
    {"role": "tool", "tool_call_id": "b", "content": "the other"},
]


def test_a_session_or_a_call_that_nobody_counted_is_lost() -> None:
    session = LoggedSession("s", "a", "t", "g", events=[("outcome", {})])
    assert count_of([CHAT], [session]).lost == 1
    session.unanswered = 1
    assert count_of([CHAT], [session]).lost == 0
    assert count_of([CHAT, CHAT], [session]).lost == 3
    assert count_of([CHAT, CHAT], [session, None]).lost == 1


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_chat_is_read_or_counted(name: str, tmp_path: Path) -> None:
    damage, write = DAMAGES[name]
    line = write(orjson.dumps({"messages": damage(CHAT)}).decode())
    path = tmp_path / "x.jsonl"
    path.write_bytes(f"{line}\n{line}\n".encode("utf-8", "surrogatepass"))
    count = count_of([CHAT, CHAT], list(read_files("messages", [path])))
    assert (count.read_sessions, count.lost) == (2, 0)


@pytest.mark.real_data
@pytest.mark.skipif(not FOLDER.exists(), reason=f"there are no logs in {FOLDER}")
def test_real_logs_are_read_whole_in_every_form() -> None:
    report = run(quick=True)
    assert report.met, [(row.name, row.note) for row in report.rows if row.figure]


def test_runs_are_read_whole_and_compressed(tmp_path: Path) -> None:
    session = {"source": "x", "agent": "a", "session": "s", "task": "t", "goal": "g", "outcome": 1}
    session |= {"label_from": "env_reward", "place": "db"}
    step = {"session": "s", "step": 0, "tool": "sql", "input": "SELECT", "output": None, "error": "no", "role": "tool"}
    for ending, pack in ((".jsonl", bytes), (".jsonl.gz", gzip.compress)):
        folder = tmp_path / ending
        folder.mkdir()
        for name, row in (("trajectories", session), ("steps", step)):
            (folder / f"{name}{ending}").write_bytes(pack(orjson.dumps(row) + b"\n"))
        [found] = read_runs(folder)
        assert (found.outcome, found.reward, found.place, len(found.events)) == ("success", 1.0, "db", 1)


def test_calls_without_a_result_are_left_out(tmp_path: Path) -> None:
    about = {"source": "s", "agent": "a", "session": "1", "task": "t", "goal": "g"}
    step = {**about, "role": "tool", "tool": "f", "input": "x", "error": None}
    (tmp_path / "trajectories.jsonl").write_bytes(orjson.dumps(about))
    steps = [{**step, "output": ""}, {**step, "output": None}, {**step, "output": None, "error": "no"}]
    (tmp_path / "steps.jsonl").write_bytes(b"\n".join(map(orjson.dumps, steps)))
    [session] = read_runs(tmp_path)
    assert [ev.ERROR_MESSAGE in data for _, data in session.events] == [False, True] and session.unanswered == 1
