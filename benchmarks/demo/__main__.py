"""Compare the same agents in the same world, first each on its own, then as a fleet: `make demo`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.command import command_app
from benchmarks.demo.arms import Plan
from benchmarks.demo.run import run_demo
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table


def demo(
    agents: Annotated[int, typer.Option(min=2, max=500, help="Number of agents.")] = 50,
    sessions: Annotated[int, typer.Option(min=1, max=100, help="Sessions per agent.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the world's rules and tasks.")] = 1,
    as_json: Json = False,
) -> None:
    """Compare scripted agents in a simulated tool world, each on its own and as a fleet.

    Starts an embedded stack in a temporary folder and removes it afterwards.
    """
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    plan = Plan(agents=agents, sessions=sessions, seed=seed)
    with tempfile.TemporaryDirectory(prefix="fleetlore-demo-") as folder, progress:
        figures = asyncio.run(run_demo(plan, Path(folder), progress))
    if as_json:
        print_json(figures.to_dict())
    else:
        print_table(("figure", ">isolated", ">fleet"), figures.table())


if __name__ == "__main__":
    command_app(demo)()
