"""Run benchmarks, `python -m benchmarks [NAME | all]`: a table and `benchmarks/results/NAME.csv`.

`heard` takes other options.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import page
from benchmarks.report import Report, Row
from fleetlore.errors import ConfigError, FleetloreError

# One a row of docs/results/performance.md, in its order.
NAMES = (
    "ingest", "same_work", "emitter", "advice", "immunity", "step", "backfill", "scale", "patterns", "formats",
)  # fmt: skip


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}; all of them if left out.")] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds only; figures mean nothing, no CSV is written.")
    ] = False,
) -> None:
    """Measure what docs/results/performance.md says."""
    console = Console(width=None if Console().is_terminal else 160)
    try:
        if name not in (*NAMES, "all"):
            raise ConfigError(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
        for each in NAMES if name == "all" else (name,):
            load = os.getloadavg()[0]
            console.rule(each, align="left")
            report: Report = importlib.import_module(f"benchmarks.{each}").run(quick)
            for part in report.all:
                console.print(part.headline(), highlight=False, markup=False)
                console.print(part.table())
            if not quick:
                # Figures are worth little if the load at the start is above half a core.
                system = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
                note = f"{system}, load at the start {load:.2f}"
                report.write_csv(page.RESULTS, Row("machine", os.cpu_count() or 0, "cores", note=note))
                page.write(NAMES)
    except FleetloreError as error:
        raise SystemExit(f"benchmarks: {error}") from None


if __name__ == "__main__":
    if sys.argv[1:2] == ["heard"]:
        from benchmarks import heard

        heard.app(sys.argv[2:], prog_name="python -m benchmarks heard")
    typer.run(main)
