"""Run `fleetlore adapters verify VERSION`: make a version again from the log and see that it is the same, to the
byte.
"""

from __future__ import annotations

import typer

from fleetlore.cli.options import Adapter, Asked, Timeout, Version, command, group
from fleetlore.cli.output import ask, print_json


def register(app: typer.Typer) -> None:
    """Add the command to the group `adapters` (entry point `adapters.verify`)."""
    group(app, "adapters").command("verify")(verify)


@command
def verify(asked: Asked, version: Version, adapter: Adapter = None, timeout: Timeout = 60.0) -> None:
    """Train a version again from the sessions that it names. Exit code 1 if the weights differ."""
    settings = asked.settings
    from streams.training.remake import remade

    found = ask(remade(settings, asked.tenant, version, adapter, timeout))
    if asked.json:
        print_json({name: getattr(found, name) for name in found.__dataclass_fields__} | {"same": found.same})
    else:
        typer.echo(
            f"{found.sessions} sessions give {found.remade[:12]}: {'the same' if found.same else 'NOT THE SAME'}."
        )
    if not found.same:
        raise typer.Exit(1)
