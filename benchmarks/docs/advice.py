"""Write the tables of docs/results/advice.md from reports of `python -m benchmarks.backtest --json`.

    python -m benchmarks.docs.advice a.json b.json …

Of reports of one source, with different seeds, the figures are means.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import orjson

from benchmarks.backtest.advice.figures import ADVICE_TABLES

PAGE = Path(__file__).parents[2] / "docs" / "results" / "advice.md"
FIGURES = tuple(chain.from_iterable(ADVICE_TABLES.values()))
FIRST = (
    "calls",
    "failed",
    "warned",
    "fail_warned",
    "recall",
    "named_kind",
    "named_exact",
    "fail_at_10%",
    "fail_at_20%",
)
BESIDE = (
    "failed_said",
    "failed_said_so_far",
    "ways_out",
    "sessions_with_foreign_literals",
    "calibration_error",
    "auroc_after_failure",
)
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Report = Mapping[str, Any]
# By column: figures.
Rows = dict[str, Mapping[str, Any]]


def merged(files: Sequence[str]) -> Report:
    """Sections of several reports as one."""
    reports = [orjson.loads(Path(file).read_bytes()) for file in files]
    report: Report = _mean([{name: each[name] for name in each if name.startswith("advice")} for each in reports])
    return report


def _mean(of: Sequence[Any]) -> Any:
    """The mean of figures that are there; of sections what each of their figures is."""
    known = [each for each in of if each is not None]
    if not known:
        return None
    if isinstance(known[0], Mapping):
        names = dict.fromkeys(chain.from_iterable(known))
        return {name: _mean([each[name] for each in known if name in each]) for name in names}
    return round(mean(known)) if isinstance(known[0], int) else mean(known)


def heard(report: Report) -> str:
    """Figures of advice, a table for each source and for each of its large tools, and a column for each slice."""
    rows: dict[str, Rows] = dict(report["advice"])
    for source, tools in report["advice_by_tool"].items():
        rows |= {f"{source}, {tool}": slices for tool, slices in tools.items()}
    return "\n".join(f"**{title}**\n\n{_table(rows[title], FIGURES)}" for title in sorted(rows))


def beside(report: Report) -> str:
    """What stands beside them, the sources side by side."""
    rows = {f"{source}, {at}": row for source, slices in report["advice_beside"].items() for at, row in slices.items()}
    return _table(rows, BESIDE)


def first(report: Report) -> str:
    """Figures of first calls, the sources side by side."""
    return _table(
        {
            f"{source}, {at}": row["first_calls"]
            for source, slices in report["advice_beside"].items()
            for at, row in slices.items()
        },
        FIRST,
    )


def rivals(report: Report) -> str:
    """AUROC over all calls, and over first calls, of advice and of its rivals."""
    lines = []
    names: tuple[str, ...] = ()
    for source, slices in report["advice"].items():
        for slice_, row in slices.items():
            names = tuple(row["rivals"])
            scores = [row, *row["rivals"].values()]
            cells = [f"{_cell(each['auroc'])} / {_cell(each['auroc_first'])}" for each in scores]
            lines.append((source, slice_, *cells))
    return _markdown(("source", "slice", "advice", *(name.replace("_", " ") for name in names)), lines)


TABLES = {"heard": heard, "beside": beside, "first": first, "rivals": rivals}


def _table(rows: Rows, figures: Sequence[str]) -> str:
    """A line a figure."""
    lines = [(f"`{name}`", *(_cell(row[name]) for row in rows.values())) for name in figures]
    return _markdown(("", *rows), lines)


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def _cell(figure: float | None) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, int) or figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure > 1 else f"{figure:.3f}".removeprefix("0")


def main(files: Sequence[str]) -> None:
    report = merged(files)
    page = PAGE.read_text()
    PAGE.write_text(_TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](report)}\n{match[3]}", page))


if __name__ == "__main__":
    main(sys.argv[1:])
