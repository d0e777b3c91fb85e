"""Each file, test and command that the pages on security name exists, and each row has a test."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.security import __main__ as figures
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explain" / "security.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
_NAMED = re.compile(r"`([^`]+)`")
# Rows of the page that maps OWASP's risks: risk, what holds, tests, what is left.
RISKS = [
    line.strip("| ").split(" | ")
    for line in (PAGE.parent / "agentic-risks.md").read_text().splitlines()
    if line.startswith(("| ASI", "| **ASI"))
]
TESTS = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}


def named(cell: int) -> Iterator[str]:
    if cell == 4:
        yield from (each for risk in RISKS for each in _NAMED.findall(risk[2]))
    for row in ROWS:
        yield from _NAMED.findall(row.strip("| ").split(" | ")[cell])


def test_each_of_the_ten_risks_names_a_test_and_what_is_left() -> None:
    assert len(RISKS) == 10
    assert all(len(risk) == 4 and _NAMED.search(risk[2]) and risk[3] for risk in RISKS)


def test_each_row_names_its_code_and_a_test() -> None:
    assert len(ROWS) > 15
    for row in ROWS:
        cells = row.strip("| ").split(" | ")
        assert len(cells) == 5 and _NAMED.search(cells[3]) and _NAMED.search(cells[4]), row


@for_each("path", *sorted({*named(3), *(each for each in named(4) if "/" in each)}))
def test_what_holds_is_where_the_page_says(path: str) -> None:
    assert (ROOT / path).exists()


@for_each("test", *sorted({each for each in named(4) if "/" not in each}))
def test_the_tests_that_the_page_names_are_run(test: str) -> None:
    assert any(re.search(rf"^(?:async )?def {test}\(", text, re.M) for text in TESTS.values())


@pytest.mark.parametrize("seconds", [0.0, 9.0])
def test_a_time_over_its_bar_is_said_to_be_missed(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(figures, "survey", lambda reader, pairs: [SimpleNamespace(seconds=seconds, exponent=1.0)])
    monkeypatch.setattr(figures, "slowest_record", lambda events, pairs: (seconds, "atom"))
    told = list(figures.times())
    assert all(("**missed**" in cell) is (seconds > 0.0) for *_, cell in told if "(bar " in cell)
    times = [
        line.strip("| ").split(" | ") for line in figures.PAGE.read_text().splitlines() if line.startswith("| time")
    ]
    assert [each[1].partition(" of '")[0] for each in times] == [each[1].partition(" of '")[0] for each in told]
    for _, what, _, cell in times:
        if bar := re.match(r"([\d.]+) ms \(bar (\d+) ms\)", cell):
            assert ("**missed**" in cell) is (float(bar[1]) > float(bar[2])), what
