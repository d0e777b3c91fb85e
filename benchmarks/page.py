"""Write the tables of measured figures from `benchmarks/results`: `python -m benchmarks.page`.

Every run of a benchmark writes them anew, so that a figure on a page is one that was measured. Only what stands between
`<!-- table: NAME -->` and `<!-- end -->` is replaced; the table `summary` is about the other tables of its page.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from benchmarks.report import shown

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / "docs" / "results" / f"{name}.md" for name in ("performance", "retrieval"))
RESULTS = Path(__file__).parent / "results"
_TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# A page is read for what it says; of a longer table only the headline stands open.
UNFOLDED_ROWS = 8
FOLDED = "<details><summary>{rows} rows</summary>\n\n{table}\n</details>\n"

Line = dict[str, str]


def render(text: str, results: Path = RESULTS) -> str:
    """A page as it should be."""
    names = [match[2] for match in _TABLE.finditer(text)]
    return _TABLE.sub(lambda match: f"{match[1]}\n{_table(match[2], names, results)}\n{match[3]}", text)


def _table(name: str, names: list[str], results: Path) -> str:
    if name == "summary":
        paths = sorted(path for each in names if (path := results / f"{each}.csv").exists())
        lines = [line for path in paths for line in _read(path) if line["bar"]]
        return _markdown(
            ("figure of", "measured", "bar", "met", "ratio"),
            [
                (line["name"], f"{_figure(line)} {line['unit']}", shown(float(line["bar"])), line["met"], line["ratio"])
                for line in lines
            ],
        )
    path = results / f"{name}.csv"
    if not path.exists():
        return f"Not measured yet: `python -m benchmarks {name}`.\n"
    parts = []
    for benchmark in dict.fromkeys(line["benchmark"] for line in _read(path)):
        lines = [line for line in _read(path) if line["benchmark"] == benchmark]
        head, rows = lines[0], lines[1:]
        note = f" {head['note'][:1].upper()}{head['note'][1:]}." if head["note"] else ""
        verdict = "met" if head["met"] == "yes" else "**missed**"
        parts.append(
            f"**{head['name']}: {_figure(head)} {head['unit']}** against a bar of {shown(float(head['bar']))}: "
            f"{verdict}; "
            f"{head['ratio']}.{note}\n"
        )
        if rows:
            table = _markdown(
                ("", "figure", "unit", "note"),
                [(line["name"], _figure(line), line["unit"], line["note"]) for line in rows],
            )
            parts.append(table if len(rows) <= UNFOLDED_ROWS else FOLDED.format(rows=len(rows), table=table))
    return "\n".join(parts)


def _figure(line: Line) -> str:
    return shown(float(line["figure"]))


def _read(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    # Leading spaces say in a terminal that a row is part of the one above; Markdown would drop them.
    cells = [tuple(re.sub(r"^ +", lambda m: "&nbsp;" * len(m[0]), cell) for cell in row) for row in rows]
    lines = [head, tuple("---:" if name == "figure" else "---" for name in head), *cells]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def write() -> None:
    """Bring the pages up to date."""
    for page in PAGES:
        page.write_text(render(page.read_text()))


if __name__ == "__main__":
    write()
