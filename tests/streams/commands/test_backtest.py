import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import run
from tests.rows import for_each


def write(folder: Path, sessions: list[tuple[str, str, bool]]) -> None:
    """(agent, task, failed): a failed session guesses a column, one that succeeded lists them first."""
    lines = []
    for agent, task, failed in sessions:
        wrong = (f"SELECT wrong {task}", f"no such column: '{task}'")
        calls = [wrong, wrong] if failed else [("list columns", None), (f"SELECT {task}", None)]
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"find {task}"}]
        for number, (query, error) in enumerate([*calls, ("submit", None)]):
            call = {"id": str(number), "function": {"name": "sql", "arguments": query}}
            said = {
                "tool_call_id": str(number),
                "content": error or "[(1,)]",
                "status": "error" if error else "success",
            }
            messages += {"role": "assistant", "tool_calls": [call]}, {"role": "tool", **said}
        session = {"id": f"{agent}/{task}", "agent": agent, "task": task, "goal": f"find {task}", "messages": messages}
        lines.append(json.dumps(session | {"reward": float(not failed)}))
    (folder / "shop.jsonl").write_text("\n".join(lines))


def fleet(agents: str, tasks: str) -> list[tuple[str, str, bool]]:
    return [(agent, task, (ord(agent) + ord(task)) % 2 == 0) for agent in agents for task in tasks]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write(tmp_path, fleet("abcdefgh", "pqrstuvw"))
    return str(tmp_path)


def test_advice_by_source_and_slice(folder: str) -> None:
    result = run("backtest", "--data", folder, "--seed", "4", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["sessions"] == {"train": 36, "test": 28} and report["patterns"] > 0
    assert set(report["advice"]["messages"]) == {"A", "T", "AT"}
    # A session that guesses fails in its first two calls; `submit` is no call.
    advice = report["advice"]["messages"]["AT"]
    assert (advice["calls"], advice["failed"]) == (8, 0.5)
    # Every agent names another column: the error's class is new with its task, its family is not.
    assert report["known_errors"]["messages"]["family"] == 1.0
    assert 0.0 < report["known_errors"]["messages"]["class"] < 1.0
    assert run("backtest", "--data", folder, "--seed", "4", "--json").stdout == result.stdout


def test_progress_goes_to_stderr_and_the_tables_name_what_they_show(folder: str) -> None:
    result = run("backtest", "--data", folder)
    assert result.exit_code == 0, result.output
    assert "asking for advice in 28 test sessions" in result.stderr and "asking" not in result.stdout
    assert "others asked for advice" in result.stdout
    for word in ("family", "fail_warned", "way_out", "chars_session", "messages"):
        assert word in result.stdout
    assert "nan" not in result.stdout and "None" not in result.stdout


@for_each("arguments", (), ("--data", "/nowhere"))
def test_a_wrong_folder_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert run("backtest", *arguments).exit_code == 2
