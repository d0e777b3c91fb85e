import csv
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.report import HEAD, Report, Row

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


def test_the_csv_has_every_row_and_every_bar(tmp_path: Path) -> None:
    path = RATE.write_csv(tmp_path / "new", Row(name="machine", figure=2, unit="cores", note="idle"))
    assert path.name == "rate.csv"
    head, *lines = csv.reader(path.read_text().splitlines())
    assert tuple(head) == HEAD
    assert [[line[0], line[1], line[2]] for line in lines] == [
        ["rate", "rate", "900"],
        ["rate", "ours", "900"],
        ["rate", "slow", "450"],
        ["lag", "lag", "0.2"],
        ["rate", "machine", "2"],
    ]
    assert lines[0][4:7] == ["1000", "no", "2.000 × slow"]
    assert lines[2][-1] == "a, b"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in command.NAMES:
        module = ModuleType(name)
        module.run = lambda quick: RATE  # type: ignore[attr-defined]
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


def test_an_unknown_name_is_an_error_that_names_the_others(results: Path) -> None:
    code, output = invoke("ingets")
    assert code != 0
    assert "no benchmark is called 'ingets'; there are ingest, same_work, single" in output


def test_a_quick_run_leaves_the_results_alone(results: Path) -> None:
    assert invoke("ingest", "--quick")[0] == 0
    assert not list(results.iterdir())
