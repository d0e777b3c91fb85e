"""A report is printed with its bars, written as a file, and shown on the page of results."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import page
from benchmarks.report import Report, Row

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
    also=(Report(name="lag", figure=0.2, bar=0.5, unit="s", peers={}, higher_is_better=False),),
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


TEXT = "before\n\n<!-- table -->\nold\n<!-- end -->\n\nafter\n"


def test_the_table_shows_each_report_and_the_text_around_it_stays(tmp_path: Path) -> None:
    RATE.write_csv(tmp_path, Row(name="machine", figure=2, unit="cores"))
    text = page.render(TEXT, ("rate", "other"), tmp_path)
    assert "| `rate` | rate | 900 events/s | 1,000: **missed** | 2.000 × slow |\n" in text
    assert "| `rate` | lag | 0.2 s | 0.5: met | 0.400 × bar |\n" in text
    assert "| `other` | not measured yet | | | |\n" in text
    assert "old" not in text and "ours" not in text
    assert text.startswith("before\n") and text.endswith("<!-- end -->\n\nafter\n")
    assert page.render(text, ("rate", "other"), tmp_path) == text


def test_the_page_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert text.count("<!-- table -->") == 1
    assert page.render(text, command.NAMES) == text, "run `python -m benchmarks.page`"
