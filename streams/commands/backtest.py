"""Run `fleetlore backtest`: learn from some logged sessions and ask for advice in others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table

if TYPE_CHECKING:
    from fleetlore.transcripts.session import LoggedSession


def register(app: typer.Typer) -> None:
    """Add `fleetlore backtest` (entry point)."""
    app.command()(backtest)


def _folder(text: str) -> Any:
    return typer.Option(exists=True, file_okay=False, metavar="DIR", help=text)


Train = Annotated[Path | None, _folder("Logged sessions to learn from; may hold several sources.")]
Test = Annotated[Path | None, _folder("Logged sessions to predict.")]
One = Annotated[Path | None, _folder("One folder in place of both: agents and tasks are held out.")]
Share = Annotated[float, typer.Option(min=0.01, max=0.9, help="With --data: share of agents and tasks to hold out.")]
LeaveOut = Annotated[str | None, typer.Option(metavar="SOURCE", help="With --data: a source to use for testing only.")]
Seed = Annotated[int, typer.Option(help="Seed of session order and hold-out.")]


def backtest(
    train: Train = None,
    test: Test = None,
    data: One = None,
    share: Share = 0.2,
    leave_out: LeaveOut = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Learn from logs and say what other agents would have heard.

    Test sessions are made again call by call. They are grouped: A (known task, new agent), T (known agent, new task),
    AT (both new), S (new source), K (another session of a known agent on a known task). 22,000 sessions take minutes.
    """
    report = asyncio.run(_report(*parts(train, test, data, share, leave_out, seed), seed))
    if as_json:
        print_json(report)
    else:
        _show(report)


def parts(
    train: Path | None, test: Path | None, data: Path | None, share: float, leave_out: str | None, seed: int
) -> tuple[list[LoggedSession], list[LoggedSession]]:
    """The sessions to learn from and those to predict, as the command's options say.

    Raises:
        typer.BadParameter: the options do not go together, or a session is in both folders.
    """
    if (data is None) == (train is None and test is None) or (train is None) != (test is None):
        raise typer.BadParameter("give --train and --test, or --data alone")
    if data is None and leave_out is not None:
        raise typer.BadParameter("--leave-out goes with --data")
    from fleetlore.transcripts.read import read_sessions
    from models.backtest.report import split

    say("reading the logs")
    if data is not None:
        return split(read_sessions(data), seed, share, leave_out)
    assert train is not None and test is not None
    known, unseen = read_sessions(train), read_sessions(test)
    both = {each.session for each in known} & {each.session for each in unseen}
    if both:
        raise typer.BadParameter(
            f"{len(both)} sessions are in both folders, {min(both)!r} first: what was learned from cannot be a test"
        )
    return known, unseen


async def _report(train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int) -> dict[str, Any]:
    from models.backtest.report import advice_rows, known_errors
    from streams.offline.hear import call_log, hear, learned_of
    from streams.offline.memory_pipeline import run_logs

    say(f"learning from {len(train):,} sessions")
    learned = learned_of(await run_logs(train, seed=seed, learn=True))
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
    """Say on stderr what is done now."""
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
    """A figure in a table."""
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3f}"
