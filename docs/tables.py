"""Write the tables of the documentation from the code: `python docs/tables.py`.

`docs/metrics.md` is made whole. In the other pages only what stands between `<!-- table: NAME -->` and `<!-- end -->`
is replaced. A test fails when one of them is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from fleetlore.config import describe
from fleetlore.wire.topics import TOPICS
from sinks.metrics import CATALOGUE, LABELS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/metrics.md", "docs/topics.md")

METRICS_HEAD = """# Metrics

Every role serves Prometheus metrics on `/metrics`, with `/livez`, `/readyz` and `/version` beside it. This page is made
from the catalogue in `sinks/metrics.py` by `make docs`. A role exports the metrics of its own work; the others stay at 0.
The metrics `process_*` of the Prometheus client (CPU, memory, open files) come with them.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def settings() -> str:
    """Every environment variable."""
    return table(
        ("variable", "default", "meaning"),
        ((f"`{name}`", f"`{default}`" if default else "", doc) for name, default, doc in describe()),
    )


def topics() -> str:
    """Every topic of a tenant."""
    rows = (
        (f"`{spec.name}`", spec.key, spec.holds, spec.kept, str(spec.partitions or "by setting")) for spec in TOPICS
    )
    return table(("topic", "key", "value", "kept", "partitions"), rows)


def metrics() -> str:
    """The whole page of the metrics."""
    parts = [METRICS_HEAD]
    for row, specs in groupby(CATALOGUE, key=lambda spec: spec.row):
        rows = (
            (f"`{spec.name}`", spec.kind, ", ".join(f"`{label}`" for label in spec.labels), spec.help) for spec in specs
        )
        parts.append(f"## {row.capitalize()}\n\n" + table(("metric", "kind", "labels", "meaning"), rows))
    labels = ((f"`{label}`", meaning) for label, meaning in LABELS.items())
    parts.append("## Labels\n\n" + table(("label", "values"), labels))
    return "\n".join(parts)


TABLES = {"settings": settings, "topics": topics}
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """The text of a page as it should be, from the code and from what is on disk."""
    if page == "docs/metrics.md":
        return metrics()
    text = (ROOT / page).read_text()
    return _TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for name in PAGES:
        text = render(name)
        (ROOT / name).write_text(text)
