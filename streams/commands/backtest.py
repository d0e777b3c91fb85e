"""Run `fleetlore backtest`: learn from some logged sessions and ask for advice in others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.shared import Json, command, print_json, print_table
from streams.commands import effects

if TYPE_CHECKING:
    from fleetlore.transcripts.session import LoggedSession

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(backtest)
    effects.register(app)


Share = Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of agents and tasks to hold out.")]
Seed = Annotated[int, typer.Option(help="Seed of session order and hold-out.")]


@command
def backtest(
    data: Annotated[
        Path,
        typer.Option(exists=True, file_okay=False, metavar="DIR", help="Logged sessions; may hold several sources."),
    ],
    share: Share = 0.2,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Learn from logs and list the advice for other agents.

    Test sessions are replayed call by call. Their groups are A (known task, new agent), T (known agent, new task), AT
    (both new), and K (another session of a known agent on a known task). 22,000 sessions take minutes.
    """
    from fleetlore.transcripts.read import read_sessions
    from models.backtest import split

    say("reading the logs")
    report = asyncio.run(_report(*split(read_sessions(data), seed, share), seed))
    if as_json:
        print_json(report)
    else:
        _show(report)


async def _report(train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int) -> dict[str, Any]:
    from models.backtest import advice_rows, known_errors
    from streams.offline.hear import call_log, hear
    from streams.offline.memory_pipeline import run_logs

    say(f"learning from {len(train):,} sessions")
    learned = await run_logs(train, seed=seed, learn=True)
    say(f"asking for advice in {len(test):,} test sessions")
    heard = await hear(learned, test)
    known = [call_log(each) for each in train]
    return {
        "sessions": {"train": len(train), "test": len(test)},
        "patterns": len(learned.patterns),
        "items": len(learned.items),
        "known_errors": known_errors(known, [each.log for each in heard]),
        "advice": advice_rows(known, heard),
    }


def say(doing: str) -> None:
    typer.echo(doing, err=True)


def _show(report: dict[str, Any]) -> None:
    sessions = report["sessions"]
    typer.echo(
        f"{report['patterns']:,} patterns and {report['items']:,} items learned from {sessions['train']:,} sessions; "
        f"{sessions['test']:,} others asked for advice"
    )
    typer.echo("\nFailed calls whose error another agent had met, by level of the pattern")
    print_table(
        ["source", ">family", ">class", ">exact"],
        [(source, *map(cell, row.values())) for source, row in report["known_errors"].items()],
    )
    typer.echo("\nAdvice before a call, after a failure, and its length")
    rows = [(source, slice_, row) for source, slices in report["advice"].items() for slice_, row in slices.items()]
    print_table(
        ["source", "slice", *(f">{name}" for name in rows[0][2])],
        [(source, slice_, *map(cell, row.values())) for source, slice_, row in rows],
    )


def cell(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3f}"
