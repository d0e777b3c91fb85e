"""Run the worlds: `python -m benchmarks.living sql --world DIR`, `python -m benchmarks.living tools`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.command import command_app
from benchmarks.living.arms import ARMS
from benchmarks.living.command import chosen, measure
from benchmarks.living.llm.model import Answers, Model
from benchmarks.living.sql.world import SqlWorld
from benchmarks.living.states import DRAWS
from benchmarks.living.tools.world import ToolsWorld
from fleetlore.cli.shared import print_json
from fleetlore.errors import ConfigError

EVERY = ",".join(ARMS)
ANSWERS = Path.home() / ".cache" / "fleetlore" / "living" / "answers.db"


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
    draws: Annotated[int, typer.Option(min=1, help="Times that each state and session is drawn.")] = DRAWS,
    url: Annotated[
        str | None, typer.Option(help="A llama.cpp server, or an OpenAI-compatible endpoint to /v1.")
    ] = None,
    answers: Annotated[Path, typer.Option(help="File of SQLite with the answers of models.")] = ANSWERS,
    keep: Annotated[Path | None, typer.Option(help="Folder for the transcripts.")] = None,
) -> None:
    """Real language models in a live world."""
    if (which == "sql") != (world is not None):
        raise ConfigError("--world is the folder of the world sql, and only of that one")
    place = SqlWorld(world) if world else ToolsWorld()
    with Model(name, Answers(answers), url) as model:
        report = measure(
            place, model, chosen(arms), states=states, sessions=sessions, seed=seed, keep=keep, draws=draws
        )
    print_json(report)


if __name__ == "__main__":
    command_app(living)()
