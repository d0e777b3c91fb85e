"""`fleetlore adapters rollback VERSION`: point all agents of a tenant to an older version again.

It signs with the trainer's key, so it runs where that key is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli_app import group
from fleetlore.cli_output import Broker, Data, Json, Tenant, ask, connection, print_json
from fleetlore.config import Settings

if TYPE_CHECKING:
    from fleetlore.manifest import AdapterPointer


def register(app: typer.Typer) -> None:
    """Add the command to the group `adapters` (entry point `adapters.rollback`)."""
    group(app, "adapters").command("rollback")(rollback)


def rollback(
    version: Annotated[str, typer.Argument(help="A published version, or its first characters.")],
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    reason: Annotated[str, typer.Option(help="Why; it is published with the pointer.")] = "rollback",
    as_json: Json = False,
) -> None:
    """Point the channel to an older version. Agents swap to it within seconds; the trainer goes on from it."""
    pointer = ask(_rollback(_with_key(connection(broker, data), data), tenant, version, reason))
    if as_json:
        print_json({"tenant": tenant, "version": pointer.version, "epoch": pointer.epoch, "reason": pointer.reason})
    else:
        typer.echo(
            f"The channel {pointer.channel} of tenant {tenant} runs {pointer.version[:12]} (epoch {pointer.epoch})."
        )


def _with_key(settings: Settings, data: Path | None) -> Settings:
    """An embedded stack keeps its key and its versions in its folder."""
    if data is None:
        return settings
    return settings.with_(
        signing_key=settings.signing_key or str(data / "keys" / "adapter_ed25519"),
        adapters_dir=settings.adapters_dir or str(data / "adapters"),
    )


async def _rollback(settings: Settings, tenant: str, version: str, reason: str) -> AdapterPointer:
    from sinks.adapters import AdapterPublisher

    async with AdapterPublisher.from_settings(settings) as publisher:
        return await publisher.rollback(tenant, version, reason)
