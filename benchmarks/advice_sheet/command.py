"""Write a sheet to be read, and take the verdicts back: `python -m benchmarks advice_sheet`.

    python -m benchmarks advice_sheet --source intercode --seed 0 --n 30            # failing calls
    python -m benchmarks advice_sheet --source intercode --seed 0 --n 30 --items    # the best-ranked items
    python -m benchmarks advice_sheet --verdicts one.csv --verdicts other.csv --keep before

The sheet is Markdown and holds texts of the logs; the file for the verdicts holds ids alone. Two readers take the same
sheet, each with a file of verdicts. Ids and verdicts are kept in `benchmarks/results/readings`, texts never.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.advice_sheet.sheet import calls_sheet, items_sheet
from benchmarks.advice_sheet.verdicts import Reading, kappa, shares
from benchmarks.command import command_app
from fleetlore.errors import ConfigError

LOGS = Path(__file__).parents[3] / "shared" / "data" / "dev"
KEPT = Path(__file__).parents[1] / "results" / "readings"


def advice_sheet(
    source: Annotated[str | None, typer.Option(help="Folder of the logs' source, below --data.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of hold-out, order and draw.")] = 0,
    n: Annotated[int, typer.Option(min=1, help="How many calls or items to read.")] = 30,
    items: Annotated[bool, typer.Option("--items", help="The best-ranked items instead of failing calls.")] = False,
    data: Annotated[Path, typer.Option(help="Folder of logged runs.")] = LOGS,
    out: Annotated[Path, typer.Option(help="Folder to write the sheet and the file for the verdicts to.")] = Path("."),
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="File with verdicts to take in; twice for two readings.")
    ] = None,
    keep: Annotated[str | None, typer.Option(metavar="NAME", help="Keep ids and verdicts under this name.")] = None,
) -> None:
    """Write a sheet of what was said, or take in the verdicts on it."""
    if (source is None) == (not verdicts):
        raise typer.BadParameter("give --source to write a sheet, or --verdicts to take verdicts in")
    if source is not None:
        sheet = (items_sheet if items else calls_sheet)(data / source, seed, n)
        out.mkdir(parents=True, exist_ok=True)
        page = out / f"{sheet.name}.md"
        page.write_text(sheet.text)
        sheet.reading.write(out / f"{sheet.name}.csv")
        typer.echo(
            f"{len(sheet.reading.verdicts)} to read in {page}; write the verdicts into {page.with_suffix('.csv')}"
        )
        return
    readings = [Reading.read(file) for file in verdicts or ()]
    for file, reading in zip(verdicts or (), readings, strict=True):
        typer.echo(f"{file}: {reading.what} of {reading.source}, seed {reading.seed}, {len(reading.verdicts)} read")
        typer.echo(shares(reading))
    if len(readings) == 2:
        agreed = kappa(*readings)
        typer.echo(f"agreement, Cohen's kappa: {'-' if agreed is None else f'{agreed:.2f}'}")
    elif len(readings) > 2:
        raise ConfigError("two readings are compared, not more")
    if keep is not None:
        KEPT.mkdir(exist_ok=True)
        for number, reading in enumerate(readings, 1):
            reading.write(KEPT / f"{keep}-{reading.what}-{reading.source}-{reading.seed}-{number}.csv")


app = command_app(advice_sheet)
