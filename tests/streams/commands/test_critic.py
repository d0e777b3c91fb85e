from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlore.cli.app import build_app
from models.judge.critic import Critic
from streams.commands.critic import register


def run(*arguments: str) -> Result:
    app = build_app()
    if "critic" not in {each.name for each in app.registered_groups}:
        # Where the package was not installed again since the entry point was added.
        register(app)
    return CliRunner().invoke(app, ["critic", "fit", *arguments])


def write(folder: Path, sessions: int, failed: bool | None = None) -> Path:
    """Sessions of which some end on an error and fail; with `failed`, all end alike (None: unknown)."""
    folder.mkdir()
    with (folder / "trajectories.jsonl").open("w") as ends, (folder / "steps.jsonl").open("w") as steps:
        for number in range(sessions):
            fails = number % 2 == 1 if failed is None else failed
            names = {
                "source": "logs",
                "agent": f"agent-{number % 5}",
                "session": f"s{number}",
                "task": f"task-{number % 7}",
                "goal": f"count the rows of table {number % 7}",
            }
            print(json.dumps(names | {"outcome": int(not fails), "label_from": "env_reward"}), file=ends)
            for place, call in enumerate(["SHOW TABLES", "SELECT count(*)"]):
                error = "no such column" if fails and place else None
                step = {"step": place, "tool": "sql", "input": call, "output": error or "ok", "error": error}
                print(json.dumps(names | step | {"role": "tool"}), file=steps)
    return folder


def test_a_critic_is_fitted_and_written(tmp_path: Path) -> None:
    logs, out = write(tmp_path / "logs", 140), tmp_path / "mine.critic"
    result = run(str(logs), "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["sessions"] == 140
    assert Critic.from_bytes(out.read_bytes()).version == report["version"]
    (family,) = report["families"]
    assert family["tools"] == "sql"
    assert family["failure"] > 10 and family["missed"] == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mine")] == ["mine.critic"]

    result = run(str(logs), "--out", str(out))
    assert report["version"] in result.stdout and "sql" in result.stdout


@pytest.mark.parametrize("failed", [True, False])
def test_logs_that_all_ended_alike_are_refused(tmp_path: Path, failed: bool) -> None:
    out = tmp_path / "mine.critic"
    result = run(str(write(tmp_path / "logs", 20, failed)), "--out", str(out))
    assert result.exit_code == 1
    assert "sessions that failed" in result.stderr
    assert not out.exists()


def test_folders_that_are_not_there_are_named(tmp_path: Path) -> None:
    result = run(str(tmp_path / "nothing"), "--out", str(tmp_path / "mine.critic"))
    assert result.exit_code == 2 and "nothing" in result.stderr
    result = run(str(tmp_path), "--out", str(tmp_path / "no" / "mine.critic"))
    assert result.exit_code == 1 and "does not exist" in result.stderr
    out = tmp_path / "a-folder"
    out.mkdir()
    result = run(str(write(tmp_path / "logs", 140)), "--out", str(out))
    assert result.exit_code == 1 and "cannot be written" in result.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []
