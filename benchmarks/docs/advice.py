"""Write the tables of docs/results/advice.md from reports of `fleetlore backtest --json`.

    python -m benchmarks.docs.advice before=a.json,b.json after=c.json,d.json

Each column is the reports of one state of the code, a source or more in each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from streams.commands.backtest import ADVICE_TABLES

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
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Report = Mapping[str, Any]
# By column: the figures of each state of the code.
Rows = dict[str, list[Mapping[str, Any]]]


def merged(files: Sequence[str]) -> dict[str, Any]:
    """Sections of several reports as one."""
    report: dict[str, Any] = {}
    for file in files:
        for name, section in orjson.loads(Path(file).read_bytes()).items():
            if name.startswith("advice"):
                report.setdefault(name, {}).update(section)
    return report


def heard(states: Mapping[str, Report]) -> str:
    """Figures of advice, a table for each source and for each of its large tools, and a column for each slice."""
    rows: dict[str, Rows] = {}
    for report in states.values():
        for source, slices in report["advice"].items():
            _append(rows, source, slices)
        for source, tools in report["advice_by_tool"].items():
            for tool, slices in tools.items():
                _append(rows, f"{source}, {tool}", slices)
    return "\n".join(f"**{title}**\n\n{_table(rows[title], FIGURES)}" for title in sorted(rows))


def first(states: Mapping[str, Report]) -> str:
    """The same of first calls, the sources side by side."""
    rows: dict[str, Rows] = {}
    for report in states.values():
        for source, slices in report["advice_beside"].items():
            _append(rows, "", {f"{source}, {at}": row["first_calls"] for at, row in slices.items()})
    return _table(rows[""], FIRST)


def rivals(states: Mapping[str, Report]) -> str:
    """AUROC over all calls, and over first calls, of the newest state of advice and of its rivals."""
    report = list(states.values())[-1]
    lines = []
    names: tuple[str, ...] = ()
    for source, slices in report["advice"].items():
        for slice_, row in slices.items():
            names = tuple(row["rivals"])
            scores = [row, *row["rivals"].values()]
            cells = [f"{_cell(each['auroc'])} / {_cell(each['auroc_first'])}" for each in scores]
            lines.append((source, slice_, *cells))
    return _markdown(("source", "slice", "advice", *(name.replace("_", " ") for name in names)), lines)


TABLES = {"heard": heard, "first": first, "rivals": rivals}


def _append(tables: dict[str, Rows], title: str, slices: Mapping[str, Mapping[str, Any]]) -> None:
    for at, row in slices.items():
        tables.setdefault(title, {}).setdefault(at, []).append(row)


def _table(rows: Rows, figures: Sequence[str]) -> str:
    """A line a figure, the states of the code one after the other in each cell."""
    lines = [(f"`{name}`", *(" → ".join(_cell(row[name]) for row in of) for of in rows.values())) for name in figures]
    return _markdown(("", *rows), lines)


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def _cell(figure: float | None) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, int) or figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure > 1 else f"{figure:.3f}".removeprefix("0")


def main(arguments: Sequence[str]) -> None:
    states = {name: merged(files.split(",")) for name, files in (each.split("=", 1) for each in arguments)}
    page = PAGE.read_text()
    PAGE.write_text(_TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](states)}\n{match[3]}", page))


if __name__ == "__main__":
    main(sys.argv[1:])
