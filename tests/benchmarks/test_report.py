import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.report import Report, Row

QUICKER = Report(name="lag", figure=0.2, bar=0.5, unit="s", peers={}, higher_is_better=False)
RATE = Report(
    name="rate",
    figure=900.0,
    bar=1000.0,
    unit="events/s",
    peers={"slow": 450.0, "fast": 1800.0},
    reference="slow",
    rows=(
        Row(name="ours", figure=900.0, unit="events/s"),
        Row(name="slow", figure=450.0, unit="events/s", note="a, b"),
    ),
    also=(QUICKER,),
    note="the disk",
)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in command.NAMES:
        module = ModuleType(name)
        module.run = lambda quick: RATE
        monkeypatch.setitem(sys.modules, f"benchmarks.{name}", module)
    monkeypatch.setattr(command.page, "RESULTS", tmp_path)
    monkeypatch.setattr(command.page, "write", lambda _: None)
    return tmp_path


def invoke(*arguments: str) -> tuple[int, str]:
    app = Typer()
    app.command()(command.main)
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output if done.exception is None else f"{done.output}{done.exception}"


def test_a_missed_bar_is_shown_and_the_csv_is_written(results: Path) -> None:
    code, output = invoke("ingest")
    assert code == 0
    assert "MISSED" in output
    assert (results / "rate.csv").read_text().splitlines()[-1].startswith("rate,machine,")


def test_a_quick_run_leaves_the_results_alone(results: Path) -> None:
    assert invoke("ingest", "--quick")[0] == 0
    assert not list(results.iterdir())
