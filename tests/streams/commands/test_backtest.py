from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetlore.cli.app import build_app
from streams.commands.backtest import register

SMOKE = Path(__file__).parents[4] / "shared" / "data" / "smoke"
KEYS = {
    "judge",
    "recurrence",
    "silence",
    "junk_rate",
    "harmless_warnings",
    "advice",
    "advice_by_tool",
    "advice_beside",
}
ADVICE = {
    "calls",
    "failed",
    "warned",
    "fail_warned",
    "fail_unwarned",
    "auroc",
    "auroc_first",
    "auroc_after_success",
    "named_kind",
    "named_exact",
    "way_out",
    "way_out_shuffled",
    "way_out_said",
    "foreign_literals",
    "start_solution",
    "chars_call",
    "chars_session",
    "rivals",
}
RIVALS = {"last_failed", "same_call", "tool_first_word", "tool_word", "words", "features"}


def run(*arguments: str) -> Result:
    app = build_app()
    # Also where the package was not installed again since the entry point was added.
    register(app)
    return CliRunner().invoke(app, ["backtest", *arguments])


def write(folder: Path, source: str, sessions: list[tuple[str, str, bool | None]]) -> Path:
    """(agent, task, failed): a failed session guesses a column, one that succeeded lists them first."""
    folder = folder / source
    folder.mkdir(parents=True)
    with (folder / "trajectories.jsonl").open("w") as ends, (folder / "steps.jsonl").open("w") as steps:
        for agent, task, failed in sessions:
            names = {
                "source": source,
                "agent": agent,
                "session": f"{source}/{agent}/{task}",
                "task": task,
                "goal": f"find {task}",
            }
            outcome = None if failed is None else int(not failed)
            print(
                json.dumps(names | {"outcome": outcome, "label_from": "env_reward", "steps": 3, "meta": {}}), file=ends
            )
            calls: list[tuple[str, str | None]] = [("list columns", None), (f"SELECT {task}", None)]
            if failed:
                calls = [(f"SELECT wrong {task}", f"no such column: '{task}'")] * 2
            for number, (text, error) in enumerate([*calls, ("submit", None)]):
                step = {"step": number, "tool": "sql", "input": text, "output": "ok", "error": error, "role": "tool"}
                print(json.dumps(names | step), file=steps)
    return folder


def fleet(agents: str, tasks: str) -> list[tuple[str, str, bool | None]]:
    return [(agent, task, (ord(agent) + ord(task)) % 2 == 0) for agent in agents for task in tasks]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    write(tmp_path / "train", "shop", fleet("abcd", "pqrs"))
    write(tmp_path / "test", "shop", [*fleet("xy", "pqrs"), *fleet("ab", "tu"), *fleet("xy", "tu"), ("z", "p", None)])
    write(tmp_path / "test", "bank", fleet("ab", "vw"))
    return str(tmp_path / "train"), str(tmp_path / "test")


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif value is not None:
        yield value


def test_every_key_by_source_and_slice(folders: tuple[str, str]) -> None:
    result = run("--train", folders[0], "--test", folders[1], "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == KEYS
    judged = {source: set(slices) for source, slices in report["judge"].items()}
    assert judged == {"shop": {"A", "T", "AT"}, "bank": {"S"}}
    assert set(report["judge"]["shop"]["A"]) == {
        "kappa",
        "kappa_all",
        "balanced_accuracy",
        "false_success_rate",
        "abstained",
    }
    assert set(report["recurrence"]["shop"]) == {"family", "class", "exact"}
    assert all(math.isfinite(each) for each in numbers(report))
    advice = report["advice"]["shop"]["AT"]
    assert set(advice) == ADVICE and set(advice["rivals"]) == RIVALS
    assert all(set(row) == {"auroc", "auroc_first", "fail_at_share"} for row in advice["rivals"].values())
    # A session that guesses fails in its first two calls; `submit` is no call.
    assert (advice["calls"], advice["failed"]) == (8, 0.5)
    assert report["advice_beside"]["shop"]["AT"]["pseudo_calls"]["submit"]["calls"] == 4
    assert advice["rivals"]["words"]["auroc_first"] == advice["rivals"]["features"]["auroc_first"] == 1.0


def test_the_learning_curve_is_asked_for(folders: tuple[str, str]) -> None:
    result = run("--train", folders[0], "--test", folders[1], "--curve", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {*KEYS, "learning_curve"}
    curve = report["learning_curve"]
    assert curve["sessions"] == [1, 2, 4, 8, 16]
    steps = curve["step_auroc"]["shop"]
    # Too few sessions for a version: what is in service is the bare base.
    assert curve["versions"] == [0] * 5 and steps["adapter"] == [steps["base"]] * 5
    shown = run("--train", folders[0], "--test", folders[1], "--curve")
    assert "Learning curve" in shown.stdout


def test_progress_goes_to_stderr_and_the_table_names_what_it_shows(folders: tuple[str, str]) -> None:
    result = run("--train", folders[0], "--test", folders[1])
    assert result.exit_code == 0, result.output
    assert "looking for junk" in result.stderr and "looking" not in result.stdout
    for word in ("kappa", "junk", "harmless", "fail_warned", "way_out", "tool_first_word", "submit"):
        assert word in result.stdout
    assert "nan" not in result.stdout


def test_a_session_in_both_folders_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "train", "shop", fleet("ab", "pq"))
    write(tmp_path / "test", "shop", fleet("b", "qr"))
    result = run("--train", str(tmp_path / "train"), "--test", str(tmp_path / "test"))
    assert result.exit_code == 2
    assert "1 sessions are in both folders, 'shop/b/q' first" in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments",
    [(), ("--train", "."), ("--data", ".", "--train", ".", "--test", "."), ("--train", "/nowhere", "--test", ".")],
)
def test_wrong_folders_are_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_one_folder_is_split_by_itself(tmp_path: Path) -> None:
    write(tmp_path, "shop", fleet("abcdefgh", "pqrstuvw"))
    write(tmp_path, "bank", fleet("ab", "pq"))
    reports = [run("--data", str(tmp_path), "--leave-out", "bank", "--seed", "4", "--json").stdout for _ in range(2)]
    judged = json.loads(reports[0])["judge"]
    assert set(judged["shop"]) == {"A", "T", "AT"} and set(judged["bank"]) == {"S"}
    assert reports[0] == reports[1]


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
def test_real_logs() -> None:
    result = run("--data", str(SMOKE / "mint"), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert all(math.isfinite(each) for each in numbers(report))
    assert report["advice"]["mint"]["A"]["rivals"]["features"]["auroc"] > report["advice"]["mint"]["A"]["failed"]


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
def test_databases_are_held_out_too() -> None:
    result = run("--data", str(SMOKE / "intercode"), "--json")
    assert result.exit_code == 0, result.output
    advice = json.loads(result.stdout)["advice"]["intercode"]
    assert {"A", "T", "AT", "P"} <= set(advice)
    # There nobody has made the very same call before.
    assert advice["P"]["calls"] > 50
    assert advice["P"]["rivals"]["same_call"]["auroc_first"] < advice["A"]["rivals"]["same_call"]["auroc_first"]
