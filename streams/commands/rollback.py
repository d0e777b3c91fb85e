"""`fleetlore adapters rollback | pin | unpin | revoke | revoke-key`: decide about versions and keys by hand.

They sign with the trainer's key, so they run where that key is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fleetlore.cli.app import group
from fleetlore.cli.options import Broker, Data, Json, Tenant, Version, connection
from fleetlore.cli.output import ask, print_json
from fleetlore.config import Settings

if TYPE_CHECKING:
    from fleetlore.wire.adapter_manifest import AdapterPointer
    from sinks.adapter_publisher import AdapterPublisher

T = TypeVar("T")

Why = Annotated[str, typer.Option(help="Reason; it is published with the decision.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the group `adapters` (entry point `adapters.rollback`)."""
    adapters = group(app, "adapters")
    for name, why, decide, text in (
        (
            "rollback",
            "rollback",
            _rollback,
            "Point the channel to an older version. Agents swap to it between two actions.",
        ),
        (
            "pin",
            "pinned",
            _pin,
            "Point the channel to a version and keep it there until `unpin`.",
        ),
        (
            "revoke",
            "revoked",
            _revoke,
            "Revoke a version for ever; the newest other one replaces it.",
        ),
    ):
        adapters.command(name, help=text)(_about_a_version(why, decide))
    adapters.command("unpin")(unpin)
    adapters.command("revoke-key")(revoke_key)


def _rollback(publisher: AdapterPublisher, tenant: str, version: str, reason: str) -> Awaitable[AdapterPointer]:
    return publisher.rollback(tenant, version, reason)


def _pin(publisher: AdapterPublisher, tenant: str, version: str, reason: str) -> Awaitable[AdapterPointer]:
    return publisher.rollback(tenant, version, reason, pinned=True)


def _revoke(publisher: AdapterPublisher, tenant: str, version: str, reason: str) -> Awaitable[AdapterPointer | None]:
    return publisher.revoke(tenant, version, reason)


def _about_a_version(
    why: str, decide: Callable[[AdapterPublisher, str, str, str], Awaitable[AdapterPointer | None]]
) -> Callable[..., None]:
    def command(
        version: Version,
        broker: Broker = None,
        data: Data = None,
        tenant: Tenant = "default",
        reason: Why = why,
        as_json: Json = False,
    ) -> None:
        pointer = ask(_with(broker, data, lambda publisher: decide(publisher, tenant, version, reason)))
        _tell(pointer, tenant, as_json)

    return command


def unpin(broker: Broker = None, data: Data = None, tenant: Tenant = "default", as_json: Json = False) -> None:
    """Let the trainer move the channel again."""
    _tell(ask(_with(broker, data, lambda publisher: publisher.unpin(tenant))), tenant, as_json)


def revoke_key(
    key_id: Annotated[str, typer.Argument(help="Id of the signing key, 16 hex digits, as `adapters show` prints it.")],
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    reason: Why = "revoked",
    as_json: Json = False,
) -> None:
    """Revoke a signing key for ever, with all that it signed. Run this where the new key is."""
    ask(_with(broker, data, lambda publisher: publisher.revoke_key(tenant, key_id, reason)))
    if as_json:
        print_json({"tenant": tenant, "key": key_id, "reason": reason})
    else:
        typer.echo(f"The key {key_id} of tenant {tenant} is revoked.")


def _tell(pointer: AdapterPointer | None, tenant: str, as_json: bool) -> None:
    if pointer is None:
        document: dict[str, object] = {"tenant": tenant, "version": None}
        text = f"Tenant {tenant} has no version left: its agents run without an adapter."
    else:
        document = {"tenant": tenant, "version": pointer.version, "epoch": pointer.epoch, "reason": pointer.reason}
        document |= {"pinned": True} if pointer.pinned else {}
        text = f"The channel {pointer.channel} of tenant {tenant} runs {pointer.version[:12]} (epoch {pointer.epoch})."
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def _with_key(settings: Settings, data: Path | None) -> Settings:
    """An embedded stack keeps its key and its versions in its folder."""
    if data is None:
        return settings
    return settings.with_(
        signing_key=settings.signing_key or str(data / "keys" / "adapter_ed25519"),
        adapters_dir=settings.adapters_dir or str(data / "adapters"),
    )


async def _with(broker: str | None, data: Path | None, act: Callable[[AdapterPublisher], Awaitable[T]]) -> T:
    from sinks.adapter_publisher import AdapterPublisher

    async with AdapterPublisher.from_settings(_with_key(connection(broker, data), data)) as publisher:
        return await act(publisher)
