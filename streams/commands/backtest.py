"""Run `fleetlore backtest`: learn from some logged sessions and test on others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table
from fleetlore.config import Settings

if TYPE_CHECKING:
    from fleetlore.risk.network import Base
    from fleetlore.transcripts.session import LoggedSession
    from models.backtest.cases import Case
    from models.backtest.report import Learned

Rows = Mapping[tuple[str, ...], Any]

ADVICE_TABLES = {
    "Advice before a call": (
        "calls",
        "failed",
        "warned",
        "fail_warned",
        "fail_unwarned",
        "auroc",
        "auroc_first",
        "auroc_after_success",
        "named_kind",
        "named_exact",
    ),
    "Advice after a failure, at the start, and its length": (
        "way_out",
        "way_out_shuffled",
        "way_out_said",
        "foreign_literals",
        "start_solution",
        "chars_call",
        "chars_session",
    ),
}


def register(app: typer.Typer) -> None:
    """Add `fleetlore backtest` (entry point)."""
    app.command()(backtest)


def _folder(text: str) -> Any:
    return typer.Option(exists=True, file_okay=False, metavar="DIR", help=text)


def backtest(
    train: Annotated[Path | None, _folder("Logged sessions to learn from; may hold several sources.")] = None,
    test: Annotated[Path | None, _folder("Logged sessions to predict.")] = None,
    data: Annotated[Path | None, _folder("One folder in place of both: agents and tasks are held out.")] = None,
    share: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="With --data: share of agents and tasks to hold out.")
    ] = 0.2,
    leave_out: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="With --data: a source to use for testing only.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of session order, hold-out and fits.")] = 0,
    curve: Annotated[
        bool,
        typer.Option("--curve", help="Also show prediction quality after parts of the sessions. Takes minutes."),
    ] = False,
    state_places: Annotated[
        bool, typer.Option("--state-places", help="Let each session state the database that its log tells.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn from logged sessions and report how well that predicts others.

    Test sessions are grouped: A (known task, new agent), T (known agent, new task), AT (both new), S (new source),
    K (another session of a known agent on a known task); for advice also P (known agent, new place: a database that
    the log tells) and AP (both new). Needs the extra `backtest`; 22,000 sessions take minutes.
    """
    known, unseen = parts(train, test, data, share, leave_out, seed)
    if state_places:
        from streams.offline.hear import at_places

        stated = at_places([*known, *unseen])
        known, unseen = stated[: len(known)], stated[len(known) :]
    report = _run(known, unseen, seed, curve, share if data is not None else None)
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
    from models.backtest.splitting import split

    _say("reading the logs")
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


def _run(
    train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int, curve: bool, hold_out: float | None
) -> dict[str, Any]:
    from fleetlore.retrieval.encoder import shared_encoder
    from models.backtest.report import backtest
    from streams.offline.hear import advice_report

    known, unseen, learned = cases_of(train, test, seed)
    base = _base() if curve else None
    report = backtest(known, unseen, learned, shared_encoder(), seed=seed, progress=_say, base=base)
    return report | advice_report(train, test, learned, seed=seed, hold_out=hold_out, progress=_say)


def cases_of(
    train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int
) -> tuple[list[Case], list[Case], Learned]:
    """Run the sessions through the pipeline: cases to learn from, cases to predict, and what was learned."""
    from models.backtest.cases import case_of
    from streams.offline.hear import learned_of
    from streams.offline.memory_pipeline import run_logs

    source = {each.session: each.source for each in (*train, *test)}
    _say(f"learning from {len(train):,} sessions")
    learned = asyncio.run(run_logs(train, seed=seed, learn=True))
    _say(f"reading {len(test):,} test sessions")
    unseen = asyncio.run(run_logs(test, seed=seed, learn=False, started=learned.ended))
    known, asked = ([case_of(each, source[each.session]) for each in part.trajectories] for part in (learned, unseen))
    return known, asked, learned_of(learned)


def _base() -> Base:
    import torch

    from fleetlore.risk.network import load_base

    torch.set_num_threads(1)  # sums of two threads differ in the last bit, and the figures are to be the same each time
    return load_base(Settings.from_env().base)


def _say(doing: str) -> None:
    typer.echo(doing, err=True)


def _show(report: Mapping[str, Any]) -> None:
    _figures(
        "Judging complete sessions, rewards hidden",
        {(source, at): row for source, slices in report["judge"].items() for at, row in slices.items()},
    )
    for title, key in (
        ("Errors met earlier by another agent, by level of the pattern", "recurrence"),
        ("Failed without an error: the missing step is named", "silence"),
    ):
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
    if "learning_curve" in report:
        _show_curve(report["learning_curve"])


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


def _show_curve(found: Mapping[str, Any]) -> None:
    _table(
        "Learning curve: AUROC of P(this call fails) of the adapter in service, by sessions seen; the bare base first",
        ("base", *(f"{seen:,}" for seen in found["sessions"])),
        {(source,): [row["base"], *row["adapter"]] for source, row in found["step_auroc"].items()},
    )


def _figures(title: str, rows: Rows) -> None:
    """A table whose columns are the names of the figures."""
    _table(title, tuple(next(iter(rows.values()), {})), {at: list(row.values()) for at, row in rows.items()})


def _table(title: str, names: Sequence[str], rows: Rows) -> None:
    typer.echo(f"\n{title}")
    keys = ("source", "slice")[: len(next(iter(rows), ()))]
    columns = [*keys, *(f">{name}" for name in names)]
    print_table(columns, [[*at, *map(_cell, row)] for at, row in rows.items()])


def _cell(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3f}"
