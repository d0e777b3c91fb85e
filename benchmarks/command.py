"""Make a command of one function, which explains an expected error in one line, as `fleetlore` does."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from fleetlore.errors import FleetloreError


def command_app(function: Callable[..., None]) -> typer.Typer:
    """An application whose options are the function's annotated parameters; call it to run it."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except FleetloreError as error:
            typer.echo(f"benchmarks: {error}", err=True)
            raise typer.Exit(1) from error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(run)
    return app
