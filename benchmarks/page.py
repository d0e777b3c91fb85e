"""Write the table of docs/results/performance.md from `benchmarks/results/*.csv`: `python -m benchmarks.page`.

Every run of a benchmark writes its file and this table, so each figure on the page was measured.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import shown

PAGE = Path(__file__).parents[1] / "docs" / "results" / "performance.md"
RESULTS = Path(__file__).parent / "results"
_TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)


def render(text: str, names: Sequence[str], results: Path = RESULTS) -> str:
    """The page with a row for every report of the benchmarks `names`; only its table is replaced."""
    lines = [
        "| `python -m benchmarks` … | figure | measured | bar | ratio |",
        "| --- | --- | ---: | --- | --- |",
        *(line for name in names for line in _lines(name, results)),
    ]
    table = "\n".join(lines)
    return _TABLE.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


def _lines(name: str, results: Path) -> Iterator[str]:
    command, path = f"`{name}`", results / f"{name}.csv"
    if not path.exists():
        yield f"| {command} | not measured yet | | | |"
        return
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["bar"]:
                figure = f"{shown(float(row['figure']))} {row['unit']}".rstrip()
                bar = f"{shown(float(row['bar']))}: {'met' if row['met'] == 'yes' else '**missed**'}"
                yield f"| {command} | {row['name']} | {figure} | {bar} | {row['ratio']} |"


def write(names: Sequence[str]) -> None:
    PAGE.write_text(render(PAGE.read_text(), names))


if __name__ == "__main__":
    from benchmarks.__main__ import NAMES

    write(NAMES)
