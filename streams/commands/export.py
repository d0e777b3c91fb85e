"""Run `fleetlore export`: what the fleet did, as a dataset that a language model is trained on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.options import Asked, command
from fleetlore.cli.output import ask, print_json, print_table

if TYPE_CHECKING:
    from fleetlore.wire.events import Definitions
    from fleetlore.wire.trajectory import Judgment


def register(app: typer.Typer) -> None:
    """Add the command (entry point `export`)."""
    app.command()(export)


@command
def export(
    asked: Asked,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Empty or new folder for the dataset.")],
    logs: Annotated[
        Path | None,
        typer.Option(
            "--logs",
            metavar="PATH",
            exists=True,
            help="Logged sessions, as `fleetlore import` reads them, in place of a broker's.",
        ),
    ] = None,
) -> None:
    """Write pairs of calls as a dataset for a language model.

    A call that worked beside one that failed, for the agents' own model, with a card. Only sessions that somebody
    judged, and only calls that no advice preceded: a model learns from what happened.
    """
    if logs is not None and (asked.broker is not None or asked.data is not None):
        raise typer.BadParameter("give --logs, or where a broker is (--broker, --data), not both")
    judged, given = (_of_logs(logs), {}) if logs is not None else _of_broker(asked)
    from models.export.dataset import write_dataset

    figures = write_dataset(judged, out, given)
    if asked.json:
        print_json({"folder": str(out), **figures})
        return
    rows = figures["rows"]
    typer.echo(f"{out}: {rows['train']:,} rows to train on, {rows['test']:,} to test on.")
    shown = [("rows", name, count) for name, count in figures["row_kinds"].items()]
    shown += [("sessions judged by", name, count) for name, count in figures["judged_by"].items()]
    shown += [("sessions left out", name, count) for name, count in figures["sessions_left_out"].items()]
    print_table(["WHAT", "OF", ">COUNT"], [(a, b, f"{n:,}") for a, b, n in shown])


def _of_broker(asked: Asked) -> tuple[list[Judgment], dict[str, Definitions]]:
    settings, tenant = asked.settings, asked.tenant
    from streams.training.judged_sessions import definitions_on, judged_sessions

    async def read() -> tuple[list[Judgment], dict[str, Definitions]]:
        return await judged_sessions(settings, tenant), await definitions_on(settings, tenant)

    return ask(read())


def _of_logs(path: Path) -> list[Judgment]:
    from fleetlore.transcripts.read import read_sessions
    from fleetlore.wire.trajectory import Judgment
    from models.judge.chain import JudgeChain
    from streams.offline.memory_pipeline import run_logs

    judges = JudgeChain()
    run = asyncio.run(run_logs(read_sessions(path), seed=0, learn=False))
    return [Judgment(trajectory=each, verdict=judges.judge(each)) for each in run.trajectories]
