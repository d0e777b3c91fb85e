"""Measure the call model on logged sessions: `python -m benchmarks.call_model --data DIR`.

Agents and tasks are held out (as `fleetlore backtest --data` does it); the sessions left are learned in the order of
the stream, one pass. Printed are: how well it foresees the calls of the held-out sessions after 300, 1,200 and all
sessions; what its warnings would be worth at shares of first calls; the same at places (databases) that were held out,
frozen and learning on; bytes of a version and CPU of learning and of asking. `python -m benchmarks.backtest` prints
what an agent hears, beside rivals.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from msgspec.structs import replace

from benchmarks.auroc import auroc
from benchmarks.backtest.advice.places import Task, places_of, slices_by_place, split_by_place
from benchmarks.backtest.scores import calibration_error
from fleetlore.calls.context import CallContext
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected
from fleetlore.cli.output import print_json
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.trajectory import Trajectory
from models.backtest.heard import CallLog
from models.backtest.report import split
from models.calls.training import CallTraining, kind_of
from models.cases import said_by
from streams.offline.hear import call_log
from streams.offline.memory_pipeline import run_logs

SHARE = 0.2
PLACES = 0.25
CURVE = (300, 1_200)
BUDGETS = (0.1, 0.2)

Figures = dict[str, float | None]


class Asked(NamedTuple):
    """A held-out call, what was said of it, and how it ended. `expected`, `met`: (kind, names)."""

    state: State
    fails: float
    failed: bool
    expected: tuple[str, tuple[str, ...]] | None
    met: tuple[str, tuple[str, ...]] | None

    @property
    def kind_is_right(self) -> bool:
        return self.expected is not None and self.met is not None and self.expected[0] == self.met[0]


def main(
    data: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Logged sessions; may hold several sources.")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many splits.")] = 3,
    tool: Annotated[str, typer.Option(help="Measure calls of this tool only.")] = "",
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print the figures, means over the splits."""
    logged = read_sessions(data)
    logs = {each.session: call_log(each) for each in logged}
    places = places_of(logs.values())
    at = {each.session: places.get((each.source, each.task), "") for each in logged}
    run = asyncio.run(run_logs(logged, seed=0, learn=False))
    sessions = {each.session: replace(each, place=at[each.session]) for each in run.trajectories if not each.part}
    found: defaultdict[str, list[Figures]] = defaultdict(list)
    for seed in range(seeds):
        known, unseen = split(logged, seed, SHARE)
        for placed in (False, True) if any(at.values()) else (False,):
            for name, figures in _curve(_of(sessions, known, placed), _of(sessions, unseen, placed), logs, tool):
                found[f"{name}{', places stated' if placed else ''}"].append(figures)
        if any(at.values()):
            found["new places"].append(_new_places(sessions, known, unseen, places, seed, logs, tool))
    report = {name: _mean(some) for name, some in found.items()}
    if json:
        print_json(report)
        return
    for name, figures in report.items():
        typer.echo(name)
        for figure, value in figures.items():
            typer.echo(f"  {figure:24} {'-' if value is None else f'{value:.3f}'}")


def _of(sessions: dict[str, Trajectory], logged: Iterable[LoggedSession], placed: bool) -> list[Trajectory]:
    """In the order of the stream."""
    found = [sessions[each.session] for each in logged if each.session in sessions]
    found.sort(key=lambda each: (each.ended, each.id))
    return found if placed else [replace(each, place="") for each in found]


def _curve(
    train: Sequence[Trajectory], test: Sequence[Trajectory], logs: dict[str, CallLog], tool: str
) -> Iterable[tuple[str, Figures]]:
    training = CallTraining()
    began = time.process_time()
    for number, session in enumerate(train, 1):
        training.learn(session)
        if number in CURVE:
            asked, _ = _ask(training, test, logs, tool)
            yield f"after {number} sessions", _foresight(asked)
    learned = time.process_time() - began
    asked, cost = _ask(training, test, logs, tool)
    version = training.version()
    costs: Figures = {"learn_us": 1e6 * learned / version.calls, "bytes": len(version.weights), **cost}
    yield "after all sessions", {**_foresight(asked), **_warnings(asked), **costs}


def _new_places(
    sessions: dict[str, Trajectory],
    known: Sequence[LoggedSession],
    unseen: Sequence[LoggedSession],
    places: dict[Task, str],
    seed: int,
    logs: dict[str, CallLog],
    tool: str,
) -> Figures:
    """Known agents at places that were held out: frozen, and learning on (the first quarter of their calls)."""
    train, test = split_by_place(known, unseen, places, seed, PLACES)
    chosen = [each for each, slices in zip(test, slices_by_place(train, test, places), strict=True) if "P" in slices]
    training = CallTraining()
    for session in _of(sessions, train, placed=True):
        training.learn(session)
    held_out = _of(sessions, chosen, placed=True)
    asked, _ = _ask(training, held_out, logs, tool)
    before = training.version().calls
    for session in held_out:
        training.learn(session)
    first = [each for each in training.version().foreseen if each.number >= before and each.state == "first"]
    quarter = first[: len(first) // 4]
    return {
        **_foresight(asked),
        "first_learning_on": auroc([each.fails for each in quarter], [each.failed for each in quarter]),
    }


def _ask(
    training: CallTraining, test: Iterable[Trajectory], logs: dict[str, CallLog], tool: str
) -> tuple[list[Asked], Figures]:
    """Ask the version of every call of the test sessions. Pseudo-calls and what passes by itself are left out."""
    model = CallModel.from_bytes(training.version().weights)
    found: list[Asked] = []
    micros: list[float] = []
    for session in test:
        context, own = CallContext(session.goal), list[Expected]()
        for step, logged in zip(session.calls, logs[session.session].calls, strict=False):
            began = time.thread_time_ns()
            call = Call.made(step.tool, step.arguments)
            outlook = model.outlook(call, context, session.place or None)
            micros.append((time.thread_time_ns() - began) / 1e3)
            met = kind_of(step, call)[1:] if step.failed else None
            if outlook is not None and not step.transient and not logged.pseudo and tool in ("", step.tool):
                expected = model.expected(call, context, session.place or None, own)
                said = (expected.kind, expected.names) if expected is not None else None
                found.append(Asked(context.state, outlook.fails, step.failed, said, met))
            if met is not None:
                own.append(Expected(*met))
            context.record(step.tool, call.text, said_by(step), step.family, arguments=step.arguments)
    return found, {"ask_us_p50": float(np.percentile(micros, 50)), "ask_us_p95": float(np.percentile(micros, 95))}


def _foresight(asked: Sequence[Asked]) -> Figures:
    fails, failed = np.array([each.fails for each in asked]), np.array([each.failed for each in asked])

    def of(*states: State) -> float | None:
        some = [each for each in asked if each.state in states]
        return auroc([each.fails for each in some], [each.failed for each in some])

    return {
        "calls": len(asked),
        "failed": mean(each.failed for each in asked),
        "auroc": of("first", "after_success", "after_failure"),
        "auroc_first": of("first"),
        "auroc_after_success": of("after_success"),
        "calibration_error": calibration_error(fails, failed),
    }


def _warnings(asked: Sequence[Asked]) -> Figures:
    """Of first calls, the share with the highest chances: how many fail, how many failures that is, what is named."""
    first = sorted((each for each in asked if each.state == "first"), key=lambda each: -each.fails)
    found: Figures = {}
    for budget in BUDGETS:
        warned = first[: round(budget * len(first))]
        failed = [each for each in warned if each.met is not None]
        named = [each for each in failed if each.met is not None and each.met[1]]
        found |= {
            f"first_{budget:.0%}_fails": len(failed) / max(1, len(warned)),
            f"first_{budget:.0%}_recall": len(failed) / max(1, sum(each.failed for each in first)),
            f"first_{budget:.0%}_kind": _share(each.kind_is_right for each in failed),
            f"first_{budget:.0%}_exact": _share(each.expected == each.met for each in named),
        }
    return found


def _share(hits: Iterable[bool]) -> float | None:
    some = list(hits)
    return sum(some) / len(some) if some else None


def _mean(some: Sequence[Figures]) -> dict[str, Any]:
    names = some[0]
    return {
        name: mean(values) if (values := [value for each in some if (value := each[name]) is not None]) else None
        for name in names
    }


if __name__ == "__main__":
    typer.run(main)
