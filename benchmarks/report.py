"""Hold the result of a benchmark: one figure against its bar, the peers of the same run, and the rows behind them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

HEAD = ("benchmark", "name", "figure", "unit", "bar", "met", "ratio", "note")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    figure: float
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One figure and whether it is good enough.

    Attributes:
        name: of the benchmark, or of one of several bars that it answers.
        figure: ours, in `unit`, as is `bar`.
        peers: by name, measured in the same run in the same unit.
        reference: the peer that `ratio` is against; None: the bar.
        rows: the printed and written lines: ours, peers, details.
        also: further bars that the same run answers.
        note: context for the figure, for example why it misses its bar.
    """

    name: str
    figure: float
    bar: float
    unit: str
    peers: Mapping[str, float] = field(default_factory=dict)
    higher_is_better: bool = True
    reference: str | None = None
    rows: tuple[Row, ...] = ()
    also: tuple[Report, ...] = ()
    note: str = ""

    @property
    def met(self) -> bool:
        return self.figure >= self.bar if self.higher_is_better else self.figure <= self.bar

    @property
    def ratio(self) -> float:
        """The figure as a multiple of the reference peer's, or else of the bar."""
        base = self.bar if self.reference is None else self.peers[self.reference]
        return self.figure / base if base else float("inf")

    @property
    def all(self) -> tuple[Report, ...]:
        return (self, *self.also)

    def headline(self) -> str:
        side = "≥" if self.higher_is_better else "≤"
        ratio = f"{self.ratio:.2f} × {self.reference or 'the bar'}"
        line = (
            f"{self.name}: {shown(self.figure)} {self.unit} · bar {side} {shown(self.bar)}: "
            f"{'met' if self.met else 'MISSED'} · {ratio}"
        )
        return f"{line}\n{self.note}" if self.note else line

    def table(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("")
        table.add_column("figure", justify="right")
        table.add_column("unit")
        table.add_column("note", overflow="fold")
        for row in self.rows:
            table.add_row(row.name, shown(row.figure), row.unit, row.note)
        return table

    def write_csv(self, folder: Path, machine: Row) -> Path:
        """`folder/NAME.csv`: a line with the bar for each report, its rows after it, and at last the machine."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.csv"
        with path.open("w", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(HEAD)
            for each in self.all:
                met, ratio = "yes" if each.met else "no", f"{each.ratio:.3f} × {each.reference or 'bar'}"
                lines.writerow(
                    (each.name, each.name, f"{each.figure:.6g}", each.unit, f"{each.bar:.6g}", met, ratio, each.note)
                )
                for row in each.rows:
                    lines.writerow((each.name, row.name, f"{row.figure:.6g}", row.unit, "", "", "", row.note))
            lines.writerow((self.name, machine.name, machine.figure, machine.unit, "", "", "", machine.note))
        return path


def shown(figure: float) -> str:
    """A figure for people: thousands apart, three digits where it is small."""
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"
