"""Run `fleetlore export`: write judged sessions and preference pairs for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from fleetlore.cli.options import Asked, command
from fleetlore.cli.output import ask, print_json
from fleetlore.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command()(export)


@command
def export(
    asked: Asked, out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the two files.")]
) -> None:
    """Write judged sessions and preference pairs as JSONL for TRL.

    `sessions.jsonl` holds each session's messages and its label. `pairs.jsonl` holds pairs of calls from one state:
    `prompt`, `chosen` (it worked) and `rejected` (it failed).
    """
    settings = asked.settings
    from models.distil.export import pairs_of, session_row, usable
    from streams.training.judged_sessions import judged_sessions

    kept = [each for each in ask(judged_sessions(settings, asked.tenant)) if usable(each)]
    files = {"sessions": [session_row(each) for each in kept], "pairs": pairs_of(kept)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in files.items():
            (out / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from None
    print_json({name: len(rows) for name, rows in files.items()})
