"""Measure all that a backtest can: `python -m benchmarks.backtest --data DIR`.

`fleetlore backtest` says what agents would have heard. Beside it stand here how well sessions are judged, the memory's
junk, rivals of advice, and sessions at new places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.backtest.advice.figures import ADVICE_TABLES
from benchmarks.backtest.cases import cases_of
from benchmarks.backtest.hear import advice_report, at_places
from benchmarks.backtest.report import backtest
from benchmarks.command import command_app
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from models.backtest.report import split
from streams.commands.backtest import Seed, Share, cell, say

Rows = Mapping[tuple[str, ...], Any]


def _folder(text: str) -> Any:
    return typer.Option(exists=True, file_okay=False, metavar="DIR", help=text)


Train = Annotated[Path | None, _folder("Logged sessions to learn from; may hold several sources.")]
Test = Annotated[Path | None, _folder("Logged sessions to predict.")]
One = Annotated[Path | None, _folder("One folder in place of both: agents and tasks are held out.")]


def measure(
    train: Train = None,
    test: Test = None,
    data: One = None,
    share: Share = 0.2,
    seed: Seed = 0,
    state_places: Annotated[
        bool, typer.Option("--state-places", help="Let each session state the database that its log tells.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn from logged sessions and report how well that predicts others, beside rivals.

    Slices are those of `fleetlore backtest`, S (new source), and for advice P (known agent, new place: a database that
    the log tells) and AP (both new). Needs the extra `backtest`; 22,000 sessions take minutes.
    """
    known, unseen = parts(train, test, data, share, seed)
    if state_places:
        stated = at_places([*known, *unseen])
        known, unseen = stated[: len(known)], stated[len(known) :]
    report = _run(known, unseen, seed, share if data is not None else None)
    if as_json:
        print_json(report)
    else:
        _show(report)


def parts(
    train: Path | None, test: Path | None, data: Path | None, share: float, seed: int
) -> tuple[list[LoggedSession], list[LoggedSession]]:
    """The sessions to learn from and those to predict, as the command's options say.

    Raises:
        typer.BadParameter: the options do not go together, or a session is in both folders.
    """
    if (data is None) == (train is None and test is None) or (train is None) != (test is None):
        raise typer.BadParameter("give --train and --test, or --data alone")
    say("reading the logs")
    if data is not None:
        return split(read_sessions(data), seed, share)
    assert train is not None and test is not None
    known, unseen = read_sessions(train), read_sessions(test)
    both = {each.session for each in known} & {each.session for each in unseen}
    if both:
        raise typer.BadParameter(
            f"{len(both)} sessions are in both folders, {min(both)!r} first: what was learned from cannot be a test"
        )
    return known, unseen


def _run(
    train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int, hold_out: float | None
) -> dict[str, Any]:
    known, unseen, learned = cases_of(train, test, seed, say)
    report = backtest(known, unseen, learned, seed=seed, progress=say)
    return report | advice_report(train, test, learned, seed=seed, hold_out=hold_out, progress=say)


def _show(report: Mapping[str, Any]) -> None:
    _figures(
        "Judging complete sessions, rewards hidden",
        {(source, at): row for source, slices in report["judge"].items() for at, row in slices.items()},
    )
    for title, key in (("Errors met earlier by another agent, by level of the pattern", "recurrence"),):
        _figures(title, {(source,): row for source, row in report[key].items()})
    _table(
        "Junk",
        ("share",),
        {
            ("memory items that are junk",): [report["junk_rate"]],
            ("harmless patterns among the warnings",): [report["harmless_warnings"]],
        },
    )
    _show_advice(report)


def _show_advice(report: Mapping[str, Any]) -> None:
    rows = {(source, at): row for source, slices in report["advice"].items() for at, row in slices.items()}
    for source, tools in report["advice_by_tool"].items():
        rows |= {(f"{source}, {tool}", at): row for tool, slices in tools.items() for at, row in slices.items()}
    for title, names in ADVICE_TABLES.items():
        _table(title, names, {at: [row[name] for name in names] for at, row in rows.items()})
    for title, name in (
        ("Advice and rivals: AUROC of the risk of calls", "auroc"),
        ("Advice and rivals: AUROC of the risk of first calls", "auroc_first"),
        ("Advice and rivals: P(fails) among as many calls as were warned of", "fail_at_share"),
    ):
        rivals = tuple(next(iter(rows.values()), {"rivals": {}})["rivals"])
        _table(
            title,
            ("advice", *rivals),
            {
                at: [
                    row["fail_warned" if name == "fail_at_share" else name],
                    *(row["rivals"][each][name] for each in rivals),
                ]
                for at, row in rows.items()
            },
        )
    beside = {(source, at): row for source, slices in report["advice_beside"].items() for at, row in slices.items()}
    _figures("Advice before first calls", {at: row["first_calls"] for at, row in beside.items()})
    names = (
        "failed_said",
        "failed_said_so_far",
        "failed_again",
        "failed_said_again",
        "auroc_after_failure",
        "calibration_error",
        "ways_out",
        "sessions_with_foreign_literals",
        "passing",
    )
    _table("Beside advice", names, {at: [row[name] for name in names] for at, row in beside.items()})
    pseudo: Rows = {
        (f"{source}, {name}", at): row
        for (source, at), figures in beside.items()
        for name, row in figures["pseudo_calls"].items()
    }
    if pseudo:
        _figures("Left out of all this: pseudo-calls", pseudo)


def _figures(title: str, rows: Rows) -> None:
    """A table whose columns are the names of the figures."""
    _table(title, tuple(next(iter(rows.values()), {})), {at: list(row.values()) for at, row in rows.items()})


def _table(title: str, names: Sequence[str], rows: Rows) -> None:
    typer.echo(f"\n{title}")
    keys = ("source", "slice")[: len(next(iter(rows), ()))]
    columns = [*keys, *(f">{name}" for name in names)]
    print_table(columns, [[*at, *map(cell, row)] for at, row in rows.items()])


if __name__ == "__main__":
    command_app(measure)()
