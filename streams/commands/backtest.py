"""Run `fleetlore backtest`: learn from some logged sessions and ask for advice in others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.agent.session import Session
from fleetlore.calls.model import CallModel
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table
from fleetlore.fingerprint.fingerprint import arguments_text, failure_of
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from models.backtest.heard import Call, CallLog, Heard, Told, told
from models.backtest.report import Learned
from streams.offline.memory_pipeline import MemoryPipeline, OfflineRun

if TYPE_CHECKING:
    from fleetlore.transcripts.session import LoggedSession

__all__ = [
    "LeaveOut",
    "One",
    "Seed",
    "Share",
    "Test",
    "Train",
    "call_log",
    "cell",
    "hear",
    "learned_of",
    "parts",
    "register",
    "say",
]

_FAILED: dict[ev.Outcome, bool | None] = {"failure": True, "success": False, "unknown": None}


def call_log(logged: LoggedSession) -> CallLog:
    """The calls of a logged session, each with the messages before it."""
    calls: list[Call] = []
    messages: list[str] = []
    for kind, data in logged.events:
        if kind == "message":
            messages.append(data[ev.CONTENT])
        else:
            calls.append(_call(data, "\n".join(messages)))
            messages = []
    return CallLog(
        logged.session,
        logged.source,
        logged.agent,
        logged.task,
        logged.goal,
        _FAILED[logged.outcome],
        tuple(calls),
    )


def learned_of(run: OfflineRun) -> Learned:
    """What a fleet has learned from a run: its lore, and a version of the call model."""
    return Learned(run.patterns, run.items, run.ended, CallModel.from_bytes(run.calls))


async def hear(learned: Learned, sessions: Sequence[LoggedSession]) -> list[Heard]:
    """What each of these sessions would have been told by a fleet that has learned this, in the order given."""
    memory = MemoryPipeline(learned.now, learn=False)
    memory.call_model = learned.calls
    for pattern in learned.patterns:
        memory.index.put_pattern(pattern, learned.now)
    for item in learned.items:
        memory.index.put_item(item, learned.now)
    return [await _hear(memory, logged) for logged in sessions]


async def _hear(memory: MemoryPipeline, logged: LoggedSession) -> Heard:
    before: list[Told] = []
    after: dict[int, Told] = {}
    asking = memory.session(logged.agent, logged.goal, logged.task, logged.session, [], place=logged.place)
    async with asking as session:
        start = told(session.advise())
        for kind, data in logged.events:
            if kind == "message":
                session.message(data[ev.ROLE], data[ev.CONTENT])
                continue
            tool, arguments = data[ev.TOOL], data[ev.ARGUMENTS]
            before.append(told(session.advise(tool, arguments)))
            await _act(session, data)
            if ev.ERROR_MESSAGE in data:
                after[len(before) - 1] = told(session.advise())
    return Heard(call_log(logged), start, tuple(before), after)


async def _act(session: Session, data: dict[str, Any]) -> None:
    async with session.action(data[ev.TOOL], data[ev.ARGUMENTS]) as action:
        if ev.ERROR_MESSAGE in data:
            action.fail("", data[ev.ERROR_MESSAGE])
        else:
            action.result = data[ev.RESULT]


def _call(data: dict[str, Any], before: str) -> Call:
    tool, arguments, error = data[ev.TOOL], data[ev.ARGUMENTS], data.get(ev.ERROR_MESSAGE)
    failure = None if error is None else failure_of(tool, arguments, "", error)
    said = arguments_text(data[ev.RESULT]) if error is None else error
    return Call(tool, arguments_text(arguments), said, failure, before)


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
