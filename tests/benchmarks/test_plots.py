from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks.command import command_app
from benchmarks.evaluate.forgetting import Forgetting
from benchmarks.evaluate.plots import trailing
from benchmarks.evaluate.report import ROWS, report
from benchmarks.evaluate.runner import Plan, Results
from benchmarks.plots import plots

RUN = {"transfer_success": 0.5, "recovery": 0.4, "repair": 0.3, "steps": 2.0, "errors": 3.0, "overhead_percent": 0.2}
RUN |= {"guard_sessions": 0.0, "guard_calls": 0.0, **{row: 0.1 for row in ROWS if row.endswith("x")}}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_app(plots), [*arguments])


def evaluated() -> dict[str, Any]:
    """A report as `python -m benchmarks.evaluate` makes it."""
    success = {"none": [0.0, 0.25], "both": [0.5, 1.0]}
    runs = {arm: {0: [RUN | {"success": value} for value in values]} for arm, values in success.items()}
    forgotten = {arm: [Forgetting(0.9, 0.895, 0.6, 0.85)] for arm in success}
    curves = {arm: [[(False, 4), (True, 2)], [(True, 0), (True, 0)]] for arm in success}
    plan = Plan(arms=tuple(success), seeds=(0,), orders=2)
    return report("tools", plan, Results(runs, forgotten, curves), 1.0)


def write(folder: Path, name: str, content: Any) -> str:
    file = folder / name
    file.write_text(json.dumps(content))
    return str(file)


def test_curves_are_means_over_the_runs() -> None:
    assert evaluated()["arms"]["both"]["curve"] == {"success": [0.5, 1.0], "errors": [2.0, 1.0]}
    assert trailing([0.0, 1.0, 1.0, 0.0, 1.0]) == [0.0, 0.5, 2 / 3, 0.5, 0.75]


@pytest.mark.parametrize("form", ["svg", pytest.param("png", marks=pytest.mark.long)])
def test_the_same_reports_give_the_same_files(tmp_path: Path, form: str) -> None:
    reports = [write(tmp_path, "e.json", evaluated())]
    names = [f"evaluate-tools-{name}" for name in ("table", "curves", "forgetting")]
    made = []
    for again in ("one", "two"):
        out = tmp_path / again
        out.mkdir()
        result = run(*reports, "--out", str(out), "--format", form, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["files"] == [str(out / f"{name}.{form}") for name in names]
        made.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert made[0] == made[1] and len(made[0]) == 3
    for data in made[0].values():
        assert len(data) < 60_000
        # No day of the run, no folder of it, no name of the software that has one.
        assert str(tmp_path).encode() not in data and b"dc:date" not in data and b"tEXt" not in data
    if form == "svg":
        assert b"both" in made[0]["evaluate-tools-table.svg"]


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    for name, content, said in (
        ("other", {"x": 1}, "no report"),
        ("list", [1], "holds no object"),
        ("half", {"world": "tools", "arms": {"none": {}}}, "can be drawn"),
        ("odd", {"world": "../x", "arms": {}}, "names no world"),
    ):
        result = run(write(tmp_path, f"{name}.json", content), *out)
        assert result.exit_code == 1 and said in result.stderr, (name, result.output)
    assert run(str(tmp_path / "gone.json"), *out).exit_code == 1
    assert run(write(tmp_path, "b.json", evaluated()), "--out", str(tmp_path / "no")).exit_code == 1
    assert [file.suffix for file in tmp_path.iterdir() if file.suffix != ".json"] == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(write(tmp_path, "b.json", evaluated()), "--out", str(tmp_path))
    assert result.exit_code == 1 and "pip install matplotlib" in result.stderr
