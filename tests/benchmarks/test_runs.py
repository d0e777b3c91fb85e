"""The form of the logs that are measured."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson

from benchmarks.runs import read_runs
from fleetlore.wire import events as ev


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
