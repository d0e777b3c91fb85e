"""Run `fleetlore adapters rollback | pin | unpin | revoke | revoke-key`.

The commands sign with the trainer's key, so they run where that key is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from fleetlore.cli.shared import Adapter, AdapterName, Asked, Version, ask, command, group, print_result
from fleetlore.errors import ConfigError
from fleetlore.wire.adapter_manifest import ADAPTERS
from streams.commands.lore.hints import checked_reason

if TYPE_CHECKING:
    from fleetlore.wire.adapter_manifest import AdapterManifest, AdapterRecord
    from sinks.adapter_publisher import AdapterPublisher

    Publisher: TypeAlias = AdapterPublisher[AdapterManifest]
    Record: TypeAlias = AdapterRecord[AdapterManifest]

__all__ = ["register"]

T = TypeVar("T")

Why = Annotated[str, typer.Option(help="Reason; it is published with the decision.", callback=checked_reason)]


def register(app: typer.Typer) -> None:
    adapters = group(app, "adapters")
    for name, why, text in (
        (
            "rollback",
            "rollback",
            "Point the channel to an older version. That of `calls` is pinned there. Agents swap between two actions.",
        ),
        ("pin", "pinned", "Keep the channel at a version until `unpin`."),
        ("revoke", "revoked", "Revoke a version for ever; the newest other one replaces it."),
    ):
        adapters.command(name, help=text)(_about_a_version(name, why))
    adapters.command("unpin")(unpin)
    adapters.command("revoke-key")(revoke_key)


def _about_a_version(action: str, why: str) -> Callable[..., None]:
    def about(asked: Asked, version: Version, adapter: Adapter = None, reason: Why = why) -> None:
        async def act(publishers: list[Publisher]) -> tuple[str, Record | None]:
            found = [(each, await each.matching(asked.tenant, version)) for each in publishers]
            if (count := sum(len(versions) for _, versions in found)) != 1:
                raise ConfigError(f"{count or 'no'} published versions begin with {version!r}")
            (publisher,) = (each for each, versions in found if versions)
            if action == "revoke":
                return publisher.kind.name, await publisher.revoke(asked.tenant, version, reason)
            pinned = action == "pin"
            return publisher.kind.name, await publisher.rollback(asked.tenant, version, reason, pinned=pinned)

        _tell(*ask(_with(asked, adapter, act)), asked)

    return command(about)


@command
def unpin(
    asked: Asked,
    adapter: Annotated[
        AdapterName | None, typer.Option("--adapter", help="Name of the adapter. Default: the pinned one.")
    ] = None,
) -> None:
    """Let the trainer move the channel again."""
    tenant = asked.tenant

    async def act(publishers: list[Publisher]) -> tuple[str, Record | None]:
        stable = [(each, (await each.published(tenant)).stable) for each in publishers]
        pinned = [each for each, release in stable if release is not None and release.record.pinned]
        if len(pinned) != 1:
            which = "; see --adapter" if pinned else ""
            raise ConfigError(f"{len(pinned) or 'no'} adapters of tenant {tenant} are pinned{which}")
        return pinned[0].kind.name, await pinned[0].unpin(tenant)

    _tell(*ask(_with(asked, adapter, act)), asked)


@command
def revoke_key(
    asked: Asked,
    key_id: Annotated[str, typer.Argument(help="Id of the signing key, 16 hex digits, as `adapters show` prints it.")],
    reason: Why = "revoked",
) -> None:
    """Revoke a signing key and every version that it signed.

    This cannot be undone. Run it where the new key is.
    """

    async def act(publishers: list[Publisher]) -> None:
        await publishers[0].revoke_key(asked.tenant, key_id, reason)

    ask(_with(asked, None, act))
    document = {"tenant": asked.tenant, "key": key_id, "reason": reason}
    print_result(asked.json, document, f"The key {key_id} of tenant {asked.tenant} is revoked.")


def _tell(adapter: str, record: Record | None, asked: Asked) -> None:
    tenant = asked.tenant
    document: dict[str, object] = {"tenant": tenant, "adapter": adapter, "version": None}
    if record is None:
        text = f"The adapter {adapter} of tenant {tenant} has no version left: its agents run without one."
    else:
        document |= {"version": record.version, "epoch": record.epoch, "reason": record.reason}
        document |= {"pinned": True} if record.pinned else {}
        text = (
            f"The adapter {adapter} of tenant {tenant}: its channel {record.channel} runs {record.version[:12]} "
            f"(epoch {record.epoch})."
        )
    print_result(asked.json, document, text)


async def _with(asked: Asked, adapter: str | None, act: Callable[[list[Publisher]], Awaitable[T]]) -> T:
    from sinks.adapter_publisher import AdapterPublisher

    settings = asked.settings.with_key(asked.data)
    publishers = [AdapterPublisher.from_settings(kind, settings) for kind in ADAPTERS if adapter in (None, kind.name)]
    async with AsyncExitStack() as stack:
        return await act([await stack.enter_async_context(each) for each in publishers])
