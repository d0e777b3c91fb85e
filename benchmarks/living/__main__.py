"""Run the worlds: `python -m benchmarks.living sql --world DIR`, `python -m benchmarks.living tools`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.command import command_app
from benchmarks.living.arms import ARMS
from benchmarks.living.command import chosen, measure
from benchmarks.living.llm.model import Answers, Model
from benchmarks.living.sql.world import SqlWorld
from benchmarks.living.tools.world import ToolsWorld
from fleetlore.cli.shared import Json, print_json, print_table
from fleetlore.errors import ConfigError

EVERY = ",".join(ARMS)
ANSWERS = Path.home() / ".cache" / "fleetlore" / "living" / "answers.db"
_PERCENT = ("works", "same_call", "same_failure", "right", "copied", "look_up", "told", "solved")


def living(
    which: Annotated[
        Literal["sql", "tools"],
        typer.Argument(help="sql: databases whose schema is not given. tools: pandas 3 and numpy 2."),
    ],
    world: Annotated[Path | None, typer.Option(help="For sql: folder of *.db and questions.json.")] = None,
    name: Annotated[
        str, typer.Option("--model", help="One that is fetched and runs here, or that of --url.")
    ] = "qwen2.5-coder-1.5b",
    arms: Annotated[str, typer.Option(help=f"With commas between them, of: {EVERY}.")] = EVERY,
    states: Annotated[
        int, typer.Option(min=0, help="Held-out tasks of which one call is asked for in every arm.")
    ] = 24,
    sessions: Annotated[int, typer.Option(min=0, help="Held-out tasks that are played in every arm.")] = 12,
    seed: Annotated[int, typer.Option(help="Of the split and of all draws.")] = 0,
    url: Annotated[
        str | None, typer.Option(help="A llama.cpp server, or an OpenAI-compatible endpoint to /v1.")
    ] = None,
    answers: Annotated[Path, typer.Option(help="File of SQLite with the answers of models.")] = ANSWERS,
    keep: Annotated[Path | None, typer.Option(help="Folder for the transcripts.")] = None,
    as_json: Json = False,
) -> None:
    """Real language models in a live world."""
    if (which == "sql") != (world is not None):
        raise ConfigError("--world is the folder of the world sql, and only of that one")
    place = SqlWorld(world) if world else ToolsWorld()
    with Model(name, Answers(answers), url) as model:
        report = measure(place, model, chosen(arms), states=states, sessions=sessions, seed=seed, keep=keep)
    if as_json:
        print_json(report)
        return
    for part in ("first_call", "after_failure", "sessions"):
        if report[part]:
            typer.echo(part)
            _table(report[part])


def _table(by_arm: Mapping[str, Mapping[str, Any]]) -> None:
    names = [name for name, value in next(iter(by_arm.values())).items() if not isinstance(value, dict)]
    print_table(
        ("arm", *(f">{name}" for name in names), ">- none"),
        [(arm, *(_cell(name, row[name]) for name in names), _difference(row)) for arm, row in by_arm.items()],
    )


def _cell(name: str, value: float) -> str:
    return f"{value:.0%}" if name in _PERCENT else f"{value:.4g}"


def _difference(row: Mapping[str, Any]) -> str:
    of = row.get("minus_none", {})
    of = of.get("failed_calls", of)
    return f"{of['mean']:+.2f} ({of['low']:+.2f}, {of['high']:+.2f})" if of else ""


if __name__ == "__main__":
    command_app(living)()
