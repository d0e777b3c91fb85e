"""Read error texts that are labelled by hand with the failure that each one is."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.runs import lines_of

__all__ = ["DATA", "HELD_OUT", "LOGS", "Labelled", "read_logged", "read_texts"]

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parents[2] / "shared" / "data" / "dev"
_ESCAPED, _ESCAPES = re.compile(r"\\([\\nrt])"), {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
LOGGED, HELD_OUT = "logged runs", "logged runs, held out"


@dataclass(frozen=True, slots=True)
class Labelled:
    """An error text and which failure it is; texts of different tools are different failures.

    Attributes:
        part: of the labels; those of `HELD_OUT` were not looked at while the masks were written.
    """

    tool: str
    label: str
    error_type: str | None
    text: str
    part: str


def read_texts(path: Path = DATA / "error_texts.txt") -> list[Labelled]:
    """The texts of common tools. The head of the file explains its form."""
    found, part = [], ""
    for block in path.read_text().split("\n\n"):
        name, *lines = block.splitlines() or [""]
        if name.startswith("## "):
            part = name.removeprefix("## ")
        if not name.startswith("["):
            continue
        tool, _, label = name[1:].partition("] ")
        for line in lines:
            kind, bar, text = line.partition(" | ")
            typed = bool(bar) and " " not in kind
            text = _ESCAPED.sub(lambda escaped: _ESCAPES[escaped[1]], text if typed else line)
            found.append(Labelled(tool, label, kind if typed else None, text, part))
    return found


def read_logged(folder: Path = LOGS, labels: Path = DATA / "logged_errors.csv") -> list[Labelled]:
    """The texts of the logged runs; none where the folder is missing."""
    with labels.open(newline="") as file:
        wanted = {
            (line["source"], line["session"], int(line["step"])): int(line["label"]) for line in csv.DictReader(file)
        }
    found = []
    for source in sorted({source for source, _, _ in wanted}):
        path = folder / source / "steps.jsonl.gz"
        for line in lines_of(path) if path.exists() else ():
            if (label := wanted.get((source, line["session"], line["step"]))) is not None:
                part = HELD_OUT if label % 3 == 0 else LOGGED
                found.append(Labelled(f"{source}/{line['tool']}", str(label), None, line["error"], part))
    return found
