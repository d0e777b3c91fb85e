"""Count the pairs of error texts that belong together and get one pattern, and those that differ and get two.

The texts of `benchmarks/data/reported_errors.txt` have the shapes that public bug reports show; its head says what each
part reached before a rule was written for it. The rivals are Sentry's grouping, as documented, and the exact text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from benchmarks.labelled import DATA, Labelled, read_texts
from benchmarks.report import Report, Row

__all__ = ["BAR", "Pair", "exact_text", "measure", "pairs_of", "read_reported", "right_of", "sentry"]

BAR = 0.95

# https://docs.sentry.io/concepts/data-management/event-grouping/ names what is replaced in a message.
_PARAMETERS = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+|\b\w{2,20}://[^\s'\"]+|\b(?:[a-zA-Z0-9-]+\.)+(?:com|net|org|example|io)\b"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]{32,40}\b"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d\S*)?|\b\d+(?:\.\d+)?ms\b|\b0x[0-9a-fA-F]+\b|-?\d+\.\d+\b|-?\b\d+\b"
)

Way = Callable[[list[Labelled]], list[str]]


class Pair(NamedTuple):
    """Places of two texts, and whether they are the same failure."""

    one: int
    other: int
    same: bool


def read_reported() -> list[Labelled]:
    """The texts in the shapes of public reports. A label ends with the thread that shows the shape."""
    return read_texts(DATA / "reported_errors.txt")


def pairs_of(texts: list[Labelled]) -> list[Pair]:
    """Neighbours within a label, and the texts of a label beside those of the next label of its tool."""
    tools: dict[str, dict[str, list[int]]] = {}
    for place, each in enumerate(texts):
        tools.setdefault(each.tool, {}).setdefault(each.label, []).append(place)
    found = []
    for labels in tools.values():
        groups = list(labels.values())
        for number, group in enumerate(groups):
            found += [Pair(one, other, True) for one, other in pairwise(group)]
            following = groups[(number + 1) % len(groups)]
            found += [Pair(one, other, False) for one, other in zip(group, following, strict=False)]
    return found


def right_of(pairs: list[Pair], clusters: list[str], *, same: bool) -> float:
    """Share of the pairs of one kind that the clusters get right."""
    wanted = [pair for pair in pairs if pair.same is same]
    return sum((clusters[one] == clusters[other]) is same for one, other, _ in wanted) / len(wanted)


def exact_text(texts: list[Labelled]) -> list[str]:
    return [f"{each.tool}\t{each.error_type}\t{each.text}" for each in texts]


def sentry(texts: list[Labelled]) -> list[str]:
    """Sentry's grouping of a message: its type and its first two lines, with parameters replaced."""
    found = []
    for each in texts:
        lines = "\n".join([line for line in each.text.splitlines() if line.strip()][:2])
        found.append(f"{each.tool}\t{each.error_type}\t{_PARAMETERS.sub('<parameter>', lines.strip())}")
    return found


def measure(ours: Way, drain3: Way) -> tuple[list[Row], list[Report]]:
    """Rows of each part, kind of pair and way to group texts, and a report of each kind of pair over all parts."""
    texts = read_reported()
    ways = {"fleetlore": ours, "drain3": drain3, "Sentry": sentry, "exact text": exact_text}
    clusters = {name: way(texts) for name, way in ways.items()}
    rows, reports = [], []
    for part in (*dict.fromkeys(each.part for each in texts), "all"):
        pairs = [pair for pair in pairs_of(texts) if part in (texts[pair.one].part, "all")]
        for same, kind in ((True, "same kept together"), (False, "different kept apart")):
            note = f"{sum(pair.same is same for pair in pairs)} pairs"
            reached = {name: right_of(pairs, found, same=same) for name, found in clusters.items()}
            rows += [Row(f"reported, {part}, {name}: {kind}", figure, "of pairs", note=note)
                     for name, figure in reached.items()]  # fmt: skip
            if part == "all":
                name, figure = f"patterns_reported_{kind.split()[0]}", reached.pop("fleetlore")
                reports.append(Report(name, figure, BAR, "", peers=reached, reference="Sentry"))
    return rows, reports
