"""Compare the same agents in the same world, first each on its own, then as a fleet: `make demo`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.command import command_app
from benchmarks.demo.arms import Plan
from benchmarks.demo.figures import Figures
from benchmarks.demo.run import can_train, run_demo
from fleetlore.cli.shared import Json, print_json, print_table
from streams.commands.console import DEFAULT_PORT

PYTORCH_SIZE = "4.7 GB with CUDA"


def demo(
    agents: Annotated[int, typer.Option(min=2, max=500, help="Number of agents.")] = 50,
    sessions: Annotated[int, typer.Option(min=1, max=100, help="Sessions per agent.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the world's rules and tasks.")] = 1,
    console: Annotated[
        bool, typer.Option("--console", help="Keep the stack and its console open at the end, until Ctrl-C.")
    ] = False,
    policy: Annotated[
        str, typer.Option(metavar="MODEL", help="Language model to train an adapter for. Default: a tiny random one.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Compare scripted agents in a simulated tool world, each on its own and as a fleet.

    Starts an embedded stack in a temporary folder and removes it afterwards.
    """
    terminal = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        disable=not terminal.is_terminal,
    )
    plan = Plan(agents=agents, sessions=sessions, seed=seed)

    async def show(figures: Figures, address: str) -> None:
        _print(figures, as_json)
        if console:
            print(f"The console is at {address} until Ctrl-C.", flush=True)
            await asyncio.Event().wait()

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folder is removed then too
    with (
        tempfile.TemporaryDirectory(prefix="fleetlore-demo-") as folder,
        progress,
        contextlib.suppress(KeyboardInterrupt),
    ):
        asyncio.run(run_demo(plan, Path(folder), progress, DEFAULT_PORT if console else None, show, policy))


def _print(figures: Figures, as_json: bool) -> None:
    if as_json:
        print_json(figures.to_dict())
        return
    print_table(("figure", ">isolated", ">fleet"), figures.table())
    print("", *figures.summary(), sep="\n")
    if not can_train():
        print(f"Left out: the policy adapter, which needs PyTorch ({PYTORCH_SIZE}): `make demo WITH=torch` adds it.")


if __name__ == "__main__":
    command_app(demo)()
