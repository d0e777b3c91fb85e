"""What a judge could tell from a log: thresholds by sessions of other tasks, splits that leave out what they say."""

from __future__ import annotations

import gzip
import sys
from itertools import product
from pathlib import Path

import numpy as np
import orjson
import pytest

from benchmarks.judge_bound import Sessions, Thresholds, best, kappa, main, splits
from fleetlore.testing.sessions import call, trajectory

AGENTS, TASKS = ("ada/1", "ada/2", "bob/1", "cyd/1"), tuple(f"task-{number}" for number in range(12))


def some() -> Sessions:
    """Sessions that fail where they made many calls."""
    found = [
        trajectory(
            *(call("look", str(place)) for place in range(1 + 4 * (number % 2))),
            session=f"{agent}:{task}",
            agent=agent,
            task=task,
            ending="failure" if number % 2 else "success",
        )
        for number, (agent, task) in enumerate(product(AGENTS, TASKS))
    ]
    return Sessions.of([*found, trajectory(ending="unknown")])


def test_a_session_without_an_end_is_left_out_and_an_agents_set_ups_are_one_family() -> None:
    sessions = some()
    assert len(sessions.failed) == len(AGENTS) * len(TASKS)
    assert set(sessions.families.tolist()) == {"ada", "bob", "cyd"}


@pytest.mark.parametrize(
    ("name", "new"), [("tasks", {"tasks"}), ("families", {"families"}), ("both", {"tasks", "families"})]
)
def test_a_split_leaves_out_what_it_is_named_after(name: str, new: set[str]) -> None:
    sessions = some()
    asked_once = np.concatenate([asked for _, asked in splits(sessions)[name]])
    assert sorted(asked_once.tolist()) == list(range(len(sessions.failed)))
    for fitted, asked in splits(sessions)[name]:
        for field in new:
            names = getattr(sessions, field)
            assert not set(names[fitted].tolist()) & set(names[asked].tolist())


def test_the_best_thresholds_are_silent_in_between_and_speak_as_often_as_they_must() -> None:
    chances = np.array([0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 0.95])
    failed = np.array([False, False, True, False, False, True, True, True])
    at = best(chances, failed, 0.5)
    spoken = at.spoken(chances)
    assert spoken.mean() >= 0.5
    assert kappa(chances[spoken] >= at.failure, failed[spoken]) == 1
    everything = best(chances, failed, 1.0)
    assert everything.spoken(chances).all()
    assert Thresholds(-1.0, 2.0).spoken(chances).sum() == 0


def test_who_calls_all_the_same_has_no_kappa() -> None:
    failed = np.array([True, True, False])
    assert kappa(failed, failed) == 1
    assert kappa(np.ones(3, bool), failed) == 0
    assert kappa(np.ones(2, bool), failed[:2]) == 0


@pytest.mark.long
def test_one_command_prints_every_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: dict[str, list[dict[str, object]]] = {"steps": [], "trajectories": []}
    for number, (agent, task) in enumerate(product(AGENTS, TASKS)):
        base = {"session": f"{agent}:{task}", "agent": agent, "task": task, "goal": task}
        rows["trajectories"].append(base | {"outcome": 1 - number % 2})
        for step in range(1 + 4 * (number % 2)):
            made = {"step": step, "tool": "look", "input": str(step), "output": "seen", "error": None, "role": "tool"}
            rows["steps"].append(base | made)
    for name, lines in rows.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wb") as file:
            file.writelines(orjson.dumps(line) + b"\n" for line in lines)
    monkeypatch.setattr(sys, "argv", ["judge_bound", str(tmp_path)])
    main()
    printed = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[0] for line in printed[::4]] == ["nothing", "tasks", "families", "both"]
    shape = next(line for line in printed if line[:2] == ["tasks", "shape"])
    assert float(shape[2]) > 0.99
