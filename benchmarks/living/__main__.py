"""Run the commands: `python -m benchmarks.living sql`, `python -m benchmarks.living tools`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.living.arms import ARMS
from benchmarks.living.command import chosen, measure
from benchmarks.living.llm.model import Answers, Model
from benchmarks.living.sql.world import SqlWorld
from benchmarks.living.tools.world import ToolsWorld
from benchmarks.living.world import World
from fleetlore.cli.shared import Json, print_json, print_table
from fleetlore.errors import FleetloreError

EVERY = ",".join(ARMS)
ANSWERS = Path.home() / ".cache" / "fleetlore" / "living" / "answers.db"
_PERCENT = ("works", "same_call", "same_failure", "right", "copied", "look_up", "told", "solved")

app = typer.Typer(pretty_exceptions_enable=False)

Name = Annotated[str, typer.Option("--model", help="One that is fetched and runs here, or that of --url.")]
Arms = Annotated[str, typer.Option(help=f"With commas between them, of: {EVERY}.")]
States = Annotated[int, typer.Option(min=0, help="Held-out tasks of which one call is asked for in every arm.")]
Sessions = Annotated[int, typer.Option(min=0, help="Held-out tasks that are played in every arm.")]
Seed = Annotated[int, typer.Option(help="Of the split and of all draws.")]
Url = Annotated[str | None, typer.Option(help="A llama.cpp server, or an OpenAI-compatible endpoint to /v1.")]
Kept = Annotated[Path, typer.Option("--answers", help="File of SQLite with the answers of models.")]
Keep = Annotated[Path | None, typer.Option(help="Folder for the transcripts.")]


@app.callback()
def living() -> None:
    """Real language models in live worlds."""


@app.command()
def sql(
    world: Annotated[Path, typer.Option(help="Folder of *.db and questions.json.")],
    model: Name = "qwen2.5-coder-1.5b",
    arms: Arms = EVERY,
    states: States = 40,
    sessions: Sessions = 8,
    seed: Seed = 0,
    url: Url = None,
    answers: Kept = ANSWERS,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Answer questions about databases whose schema is not given."""
    _run(lambda: SqlWorld(world), model, arms, states, sessions, seed, url, answers, keep, as_json)


@app.command()
def tools(
    model: Name = "qwen2.5-coder-1.5b",
    arms: Arms = EVERY,
    states: States = 24,
    sessions: Sessions = 24,
    seed: Seed = 0,
    url: Url = None,
    answers: Kept = ANSWERS,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Solve tasks with pandas 3 and numpy 2, which lack what models learned of them."""
    _run(ToolsWorld, model, arms, states, sessions, seed, url, answers, keep, as_json)


def _run(
    make: Callable[[], World],
    name: str,
    arms: str,
    states: int,
    sessions: int,
    seed: int,
    url: str | None,
    answers: Path,
    keep: Path | None,
    as_json: bool,
) -> None:
    try:
        with Model(name, Answers(answers), url) as model:
            report = measure(make(), model, chosen(arms), states=states, sessions=sessions, seed=seed, keep=keep)
    except FleetloreError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        raise typer.Exit(1) from error
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
    app()
