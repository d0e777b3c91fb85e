"""Measure what a language model does with advice: `python -m benchmarks.language_model DIR`.

It chooses the call that is likeliest by token, given the goal with no advice, with fleetlore's, with a placebo of equal
length, and with the calls that the advice quotes but no word about them: what is quoted is likelier by that alone.
Beside it: a uniform choice, and the least risky call by the call model. Intervals are drawn by task. States without
advice say nothing of it, so those that have some are counted apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer

from benchmarks.command import command_app
from benchmarks.evaluate.logged.figures import interval
from benchmarks.evaluate.logged.logs import python_log, some_tasks, sql_log
from benchmarks.language_model.endpoint import Endpoint
from benchmarks.language_model.local import Local
from benchmarks.language_model.states import State, states
from fleetlore.cli.output import print_json
from fleetlore.errors import ConfigError

HEARS = ("none", "advice", "placebo", "quoted")
UNKNOWN = 0.5
Weights = np.ndarray[Any, Any]


class Scorer(Protocol):
    def scores(self, prompt: str, candidates: Sequence[str]) -> list[float]: ...


def main(
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Logged sessions.")],
    most: Annotated[int, typer.Option(min=2, help="States of each log.")] = 40,
    tasks: Annotated[int, typer.Option(min=0, help="Tasks of each log, drawn by a hash; 0: all.")] = 0,
    endpoint: Annotated[str, typer.Option(help="URL of an OpenAI-compatible endpoint, to /v1.")] = "",
    model: Annotated[str, typer.Option(help="Its model.")] = "",
    choice: Annotated[bool, typer.Option("--choice", help="Ask it for a letter, not for log-probabilities.")] = False,
) -> None:
    """Print by log how often the chosen call fails and solves, and what advice and placebo change."""
    if bool(endpoint) != bool(model):
        raise ConfigError("--endpoint and --model go together")
    scorer: Scorer = Endpoint(endpoint, model, echo=not choice) if endpoint else Local.smollm2()
    worlds = {"sql": sql_log, "python": python_log}
    drawn = {name: asyncio.run(states(some_tasks(read(data), tasks), most)) for name, read in worlds.items()}
    print_json({name: measure(some, scorer) for name, some in drawn.items()})


def measure(some: Sequence[State], scorer: Scorer) -> dict[str, Any]:
    """Of `all` states and of those `advised`: their number, `fails` and `solves` {arm: interval}, `minus_none` of both.

    Raises:
        ConfigError: there are no states.
    """
    if not some:
        raise ConfigError("no held-out task has both a call that failed and one that worked")
    chosen = [_choices(each, scorer) for each in some]
    advised = [place for place, each in enumerate(some) if each.placebo]
    parts = {"all": range(len(some)), "advised": advised}
    return {
        name: _figures([some[place] for place in places], [chosen[place] for place in places])
        for name, places in parts.items()
        if places
    }


def _choices(state: State, scorer: Scorer) -> dict[str, Weights]:
    """By arm, the weight of each candidate."""
    found = {
        "uniform": np.ones(len(state.candidates)),
        "least risk": _least([UNKNOWN if risk is None else risk for risk in state.risks]),
    }
    by_prompt: dict[str, Weights] = {}
    for heard in HEARS:
        asked = prompt(state, heard)
        if asked not in by_prompt:
            by_prompt[asked] = _least([-score for score in scorer.scores(asked, state.candidates)])
        found[heard] = by_prompt[asked]
    return found


def _figures(some: Sequence[State], chosen: Sequence[dict[str, Weights]]) -> dict[str, Any]:
    clusters = [each.task for each in some]
    report: dict[str, Any] = {"states": len(some)}
    for what in ("fails", "solves"):
        by_arm = {
            arm: [
                float(np.average(each.failed if what == "fails" else each.solves, weights=weights[arm]))
                for each, weights in zip(some, chosen, strict=True)
            ]
            for arm in chosen[0]
        }
        report[what] = {arm: interval(clusters, values) for arm, values in by_arm.items()}
        report[f"{what}_minus_none"] = {
            arm: interval(clusters, [a - b for a, b in zip(values, by_arm["none"], strict=True)])
            for arm, values in by_arm.items()
            if arm != "none"
        }
    return report


def prompt(state: State, heard: str) -> str:
    """What the model reads before a call."""
    told = {"none": "", "advice": state.advice, "placebo": state.placebo, "quoted": state.quoted}[heard]
    known = f"What other agents learned:\n{told}\n\n" if told else ""
    return f"Task: {state.goal}\n\n{known}Next call of the tool {state.tool}:\n"


def _least(values: Sequence[float]) -> Weights:
    """Weight of each: those that share the least share the choice."""
    least: Weights = np.array(values) == min(values)
    return least.astype(float)


app = command_app(main)
