"""Run `fleetlore backtest`, `uplift` and `why`."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fleetlore.cli import shared
from fleetlore.cli.lore import read_lore
from fleetlore.errors import ConfigError
from fleetlore.words import count

if TYPE_CHECKING:
    from fleetlore.transcripts.session import LoggedSession
    from models.uplift import Measure, Trial, Uplift

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    for each in (backtest, uplift, why):
        app.command()(each)


Share = Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of agents and tasks to hold out.")]
Seed = Annotated[int, typer.Option(help="Seed of session order and hold-out.")]


@shared.command
def backtest(
    data: Annotated[
        Path,
        typer.Option(exists=True, file_okay=False, metavar="DIR", help="Logged sessions; may hold several sources."),
    ],
    share: Share = 0.2,
    seed: Seed = 0,
    as_json: shared.Json = False,
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
        shared.print_json(report)
    else:
        _show(report)


async def _report(train: Sequence[LoggedSession], test: Sequence[LoggedSession], seed: int) -> dict[str, Any]:
    from models.backtest import advice_rows, known_errors
    from streams.offline.memory_pipeline import call_log, hear, run_logs

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
    shared.print_table(
        ["source", ">family", ">class", ">exact"],
        [(source, *map(cell, row.values())) for source, row in report["known_errors"].items()],
    )
    typer.echo("\nAdvice before a call, after a failure, and its length")
    rows = [(source, slice_, row) for source, slices in report["advice"].items() for slice_, row in slices.items()]
    shared.print_table(
        ["source", "slice", *(f">{name}" for name in rows[0][2])],
        [(source, slice_, *map(cell, row.values())) for source, slice_, row in rows],
    )


def cell(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3f}"


_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}


def _since(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,5}[mhd]", text, re.ASCII):
        raise typer.BadParameter(f"{text!r} is no time like 90m, 24h or 7d")
    return text


@shared.command
def uplift(
    reader: shared.Reader,
    by: Annotated[
        Literal["hint", "source", "tool", "task"] | None, typer.Option("--by", help="Show a row for each of these.")
    ] = None,
    since: Annotated[str, typer.Option("--since", help="Sessions that ended in this time.", callback=_since)] = "7d",
    limit: shared.Limit = 20,
) -> None:
    """Show whether hints help.

    It compares calls with a hint and calls from which the hint was withheld at random. A call counts for a hint if it
    is the session's first one for which the hint was drawn. Intervals (95 %) are of the difference with a hint and
    without, and take calls of one session as alike. One in 20 rows without any effect will seem to have one.
    """
    from models.uplift import uplift as effect
    from streams.console.sessions import HintNames, seen_sessions, trials_of

    begin = time.time() - int(since[:-1]) * _SECONDS[since[-1]]
    sessions = [each for each in shared.ask(seen_sessions(reader.settings, reader.tenant)) if each.ended >= begin]
    names = HintNames(read_lore(reader)) if by in ("source", "hint") else None

    def source(trial: Trial) -> str:
        return trial.source or (names.source(trial.hint, trial.tool) if names is not None else "")

    def group(trial: Trial) -> str:
        if by == "source":
            return source(trial) or "unknown"
        return "all" if by is None else str(getattr(trial, by))

    def words(row: tuple[str, Uplift]) -> str:
        trial = groups[row[0]][0]
        return f"{trial.tool}: {names.words(trial.hint, source(trial))}" if names is not None else ""

    groups: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in trials_of(sessions):
        groups[group(trial)].append(trial)
    if by is None:
        groups.setdefault("all", [])
    rows = [(name, effect(trials, len(sessions))) for name, trials in groups.items()]
    rows.sort(key=lambda row: (-(row[1].shown + row[1].withheld), row[0]))
    if by is None and not reader.json:
        typer.echo(f"{rows[0][1].answer}\n")
    columns: shared.Columns = {
        f"~{(by or 'hints').upper()}": lambda row: row[0] or "-",
        ">SHOWN": lambda row: f"{row[1].shown:,}",
        ">WITHHELD": lambda row: f"{row[1].withheld:,}",
        ">FAILED": lambda row: _rates(row[1].failures),
        ">POINTS, 95 %": lambda row: _interval(row[1].failures),
        ">SUCCESS": lambda row: _rates(row[1].success),
        ">POINTS, 95 % ": lambda row: _interval(row[1].success),
        ">CALLS": lambda row: _rates(row[1].calls, ".1f"),
        ">95 %": lambda row: _interval(row[1].calls, 1, ".1f"),
        ">SESSIONS NEEDED": lambda row: _needed(row[1]),
        **({"~WORDS": words} if by == "hint" else {}),
    }
    nothing = f"No hint was drawn in the sessions of tenant {reader.tenant} in the last {since}."
    shared.print_list(reader, "effects", rows, columns, nothing=nothing, limit=limit,
               as_json=lambda row: _document(*row), since=since, sessions=len(sessions))  # fmt: skip


def _needed(of: Uplift) -> str:
    return "-" if of.failures.shown is None or of.failures.is_found else f"{of.needed:,}"


def _rates(of: Measure, form: str = ".0%") -> str:
    pair = ["-" if each is None else format(each, form) for each in (of.shown, of.withheld)]
    return " | ".join(pair)


def _interval(of: Measure, scale: float = 100, form: str = ".0f") -> str:
    if of.low is None or of.high is None:
        return "-"
    return f"{of.low * scale:{form}} to {of.high * scale:{form}}"


def _document(group: str, of: Uplift) -> dict[str, object]:
    measures = {name: getattr(of, name)._asdict() for name in ("failures", "success", "calls")}
    return {"group": group, **of._asdict(), **measures}


@shared.command
def why(
    stack: shared.Stack,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id or key; if resumed, its newest part.")],
    call: Annotated[
        int | None, typer.Argument(metavar="[CALL]", help="Only this call, by the number of its event.")
    ] = None,
    tenant: shared.Tenant = "default",
    timeout: shared.Timeout = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show why a session was shown its hints.

    These are the hints, their evidence, those withheld at random, and what the agent did next.

    A trace names the session (`fleetlore.session`) and the hints (`fleetlore.advice`, `fleetlore.withheld`).
    """
    settings = stack.settings
    from streams.console.sessions import HintNames, explained
    from streams.console.sources import Sources

    if not (named := [each for each, _ in shared.ask(Sources(settings, tenant, ()).sessions_named(session))]):
        raise ConfigError(f"no judged session {session!r} of tenant {tenant} is in the store")
    of, *others = named
    if call is not None and call not in [step.sequence for step in of.calls]:
        raise ConfigError(f"the session has no call {call}: its calls are {_numbers([s.sequence for s in of.calls])}")
    index = read_lore(shared.Reader(broker=stack.broker, data=stack.data, tenant=tenant, timeout=timeout))
    found = [each for each in explained(of, HintNames(index)) if call in (None, each.call)]
    if json:
        about = {name: getattr(of, name) for name in ("session", "agent", "task", "started", "ended", "ending")}
        shared.print_json({"tenant": tenant, **about, "hints": [each._asdict() for each in found]})
        return
    when = f"{shared.moment(of.started)} to {shared.moment(of.ended)} (UTC)"
    typer.echo(f"session {shared.safe(of.session)} of {shared.safe(of.agent)}, {when}, {of.ending}")
    if others:
        typer.echo(f"{count(len(others), 'more part')}: {', '.join(shared.safe(each.session) for each in others)}")
    if not found:
        typer.echo("It was shown no hint, and none was withheld.")
    for each in found:
        drawn = "withheld at random" if each.withheld else "shown"
        typer.echo(f"\n{each.call}  {shared.safe(each.tool)}: {drawn}: {shared.safe(each.text)}")
        typer.echo(
            f"   {each.source or 'unknown source'}, id {shared.safe(each.id)}; {each.evidence or 'no evidence is kept'}"
        )
        if each.sessions:
            typer.echo(f"   learned in {', '.join(map(shared.safe, each.sessions))}")
        typer.echo(f"   next: {shared.safe(each.then)}")


def _numbers(calls: list[int]) -> str:
    shown = ", ".join(map(str, calls[:20]))
    return shown + (", …" if len(calls) > 20 else "") or "none"
