"""Run `fleetlore backtest`: learn from some logged sessions and test on others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.options import Json
from fleetlore.cli.output import Column, print_json, print_table
from fleetlore.config import Settings

if TYPE_CHECKING:
    from fleetlore.risk.network import Base
    from models.backtest.cases import Case
    from models.backtest.report import Learned
    from streams.offline.logs import LoggedSession

Rows = Mapping[tuple[str, ...], Any]


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
    as_json: Json = False,
) -> None:
    """Learn from logged sessions and report how well that predicts others.

    Test sessions are grouped: A (known task, new agent), T (known agent, new task), AT (both new), S (new source),
    K (another session of a known agent on a known task). Needs the extra `backtest`; 22,000 sessions take minutes.
    """
    report = _run(*parts(train, test, data, share, leave_out, seed), seed, curve)
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
    from models.backtest.splitting import split
    from streams.offline.logs import read_sessions

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


def _run(train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int, curve: bool) -> dict[str, Any]:
    from fleetlore.risk.encoder import shared_encoder
    from models.backtest.report import backtest

    known, unseen, learned = cases_of(train, test, seed)
    base = _base() if curve else None
    return backtest(known, unseen, learned, shared_encoder(), seed=seed, progress=_say, base=base)


def cases_of(
    train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int
) -> tuple[list[Case], list[Case], Learned]:
    """Run the sessions through the pipeline: cases to learn from, cases to predict, and what was learned."""
    from models.backtest.cases import case_of
    from models.backtest.report import Learned
    from streams.offline.memory_pipeline import run_logs

    source = {each.session: each.source for each in (*train, *test)}
    _say(f"learning from {len(train):,} sessions")
    learned = asyncio.run(run_logs(train, seed=seed, learn=True))
    _say(f"reading {len(test):,} test sessions")
    unseen = asyncio.run(run_logs(test, seed=seed, learn=False, started=learned.ended))
    known, asked = ([case_of(each, source[each.session]) for each in part.trajectories] for part in (learned, unseen))
    return known, asked, Learned(learned.patterns, learned.items, learned.ended)


def _base() -> Base:
    import torch

    from fleetlore.risk.network import load_base

    torch.set_num_threads(1)  # sums of two threads differ in the last bit, and the figures are to be the same each time
    return load_base(Settings.from_env().base)


def _say(doing: str) -> None:
    typer.echo(doing, err=True)


def _show(report: Mapping[str, Any]) -> None:
    foreseen, baseline, prior = report["failure_auroc"], report["tfidf_baseline"], report["priors"]
    views, rivals = ("k1", "k2", "k3", "within_task_k1"), ("task", "agent")
    _table(
        "AUROC of P(session fails) after 1, 2, 3 calls and within a task after 1; the same of TF-IDF; priors",
        (*views, *(f"tfidf {view}" for view in views), *rivals),
        {
            (source, slice_): [
                *(row[view] for view in views),
                *(baseline[source][slice_][view] for view in views),
                *(prior[source][slice_][rival] for rival in rivals),
            ]
            for source, slices in foreseen.items()
            for slice_, row in slices.items()
        },
    )
    _figures(
        "Judging complete sessions, rewards hidden",
        {(source, at): row for source, slices in report["judge"].items() for at, row in slices.items()},
    )
    for title, key in (
        ("Errors met earlier by another agent, by level of the pattern", "recurrence"),
        ("Calibration of P(session fails)", "calibration"),
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
    if "learning_curve" in report:
        _show_curve(report["learning_curve"])


def _show_curve(found: Mapping[str, Any]) -> None:
    names = [f"{seen:,}" for seen in found["sessions"]]
    _table(
        "Learning curve: AUROC of P(session fails) after one call, by sessions seen",
        names,
        {
            (f"{source}, {model}", slice_): models[model]["k1"]
            for source, slices in found["failure_auroc"].items()
            for slice_, models in slices.items()
            for model in models
        },
    )
    _table(
        "Learning curve: AUROC of P(this call fails) of the adapter in service, by sessions seen; the bare base first",
        ("base", *names),
        {(source,): [row["base"], *row["adapter"]] for source, row in found["step_auroc"].items()},
    )


def _figures(title: str, rows: Rows) -> None:
    """A table whose columns are the names of the figures."""
    _table(title, tuple(next(iter(rows.values()), {})), {at: list(row.values()) for at, row in rows.items()})


def _table(title: str, names: Sequence[str], rows: Rows) -> None:
    typer.echo(f"\n{title}")
    keys = ("source", "slice")[: len(next(iter(rows), ()))]
    columns = [*(Column(key) for key in keys), *(Column(name, "right") for name in names)]
    print_table(columns, [[*at, *map(_cell, row)] for at, row in rows.items()])


def _cell(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}"
