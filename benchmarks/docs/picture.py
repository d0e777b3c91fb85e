"""Draw the end of a command's output as SVG.

    FORCE_COLOR=1 COLUMNS=100 make demo | python -m benchmarks.docs.picture docs/results/demo.svg

A picture in the documentation shows only what a command printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

TITLE = "make demo"
MOST_LINES = 40


def draw(output: str) -> str:
    """SVG of the last lines of some terminal output."""
    lines = output.rstrip().splitlines()[-MOST_LINES:]
    text = Text.from_ansi("\n".join(lines), no_wrap=True)
    with Path("/dev/null").open("w") as nowhere:
        console = Console(
            record=True, file=nowhere, width=max((len(line) for line in text.plain.splitlines()), default=80)
        )
        console.print(text, soft_wrap=True)
        return console.export_svg(title=TITLE)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.stdin.isatty():
        sys.exit(__doc__)
    Path(sys.argv[1]).write_text(draw(sys.stdin.read()))
