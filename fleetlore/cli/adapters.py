"""Run `adapters list` and `show`, and `places` of the call model."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli import shared

if TYPE_CHECKING:
    from fleetlore.adapters.listing import AdapterListing, Listed
    from fleetlore.calls.model import CallModel
    from fleetlore.calls.places import PlaceNames

_SHORT = 12
_MOST_NAMES = 20
_MOST_FIGURES = 3


@shared.command
def list_(reader: shared.Reader, adapter: shared.Adapter = None) -> None:
    """List all versions, oldest first, and who runs them."""
    listing, nothing = _read(reader, adapter), f"No adapter of tenant {reader.tenant} is published yet."
    rows, pointers = listing.versions(), list(listing.pointers)
    shared.print_list(reader, "versions", rows, _COLUMNS, nothing=nothing, as_json=_document, pointers=pointers)


@shared.command
def show(reader: shared.Reader, version: shared.Version, adapter: shared.Adapter = None) -> None:
    """Show one version: its lineage, metrics and agents.

    Signatures are not checked.
    """
    of = shared.only(_read(reader, adapter).versions() if version else (), "version", version, "version")
    manifest = of.manifest
    if reader.json:
        lists = {"lineage": of.lineage, "running": of.running, "refused": of.refused}
        shared.print_json({**manifest, "channels": _channels(of), "agents_running": len(of.running), **lists})
        return
    facts: dict[str, Any] = {"adapter": of.adapter, "version": of.version, "ordinal": of.ordinal}
    facts |= {"channels": _channels(of), "sessions": manifest.get("sessions", 0)}
    facts |= {"lineage": " ← ".join(each[:_SHORT] for each in of.lineage)}
    facts |= {"run by": _some(of.running), "not run by": _some(of.refused)}
    facts |= {
        name: manifest.get(name)
        for name in ("agents", "calls", "tools", "rank", "alpha", "size_bytes", "encoder", "base_sha256", "key_id")
        if name in manifest
    }
    facts |= {"created": shared.moment(of.created), "gate": _figures(of)}
    facts |= {
        "learned from": [
            f"{each.get('topic')}[{each.get('partition')}] {each.get('start')}–{each.get('stop')}"
            for each in manifest.get("data", [])
            if isinstance(each, dict)
        ]
    }
    for name, value in facts.items():
        said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
        typer.echo(f"{name:<15} {shared.safe(said) or '-'}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(names)}: {', '.join(names[:_MOST_NAMES])}{more}" if names else "-"


def _document(of: Listed) -> dict[str, Any]:
    metrics = of.manifest.get("metrics")
    return {
        "adapter": of.adapter,
        "version": of.version,
        "ordinal": of.ordinal,
        "parent": of.manifest.get("parent"),
        "created": of.created,
        "sessions": of.manifest.get("sessions", 0),
        "channels": _channels(of),
        "agents_running": len(of.running),
        "metrics": metrics if isinstance(metrics, dict) else {},
    }


def _channels(of: Listed) -> list[str]:
    return [f"{each} (pinned)" if each in of.pinned else each for each in of.channels]


def _figures(of: Listed, most: int | None = None) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in of.metrics[:most]) or "-"


_COLUMNS: shared.Columns = {
    "ADAPTER": attrgetter("adapter"),
    ">#": attrgetter("ordinal"),
    "VERSION": lambda of: of.version[:_SHORT],
    "PARENT": lambda of: str(of.manifest.get("parent") or "-")[:_SHORT],
    "CHANNELS": lambda of: ", ".join(_channels(of)) or "-",
    ">AGENTS": lambda of: len(of.running),
    ">SESSIONS": lambda of: of.manifest.get("sessions", 0),
    "CREATED (UTC)": lambda of: shared.moment(of.created),
    "~GATE": lambda of: _figures(of, _MOST_FIGURES),
}


def _read(reader: shared.Reader, adapter: shared.Adapter) -> AdapterListing:
    cluster = reader.settings.cluster
    from fleetlore.adapters.listing import read_adapters

    listing = shared.ask(read_adapters(cluster, reader.tenant, timeout_seconds=reader.timeout))
    return listing.of(adapter) if adapter is not None else listing


@shared.command
def places(
    reader: shared.Reader,
    place: Annotated[str | None, typer.Argument(metavar="[PLACE]", help="Show the names known at this place.")] = None,
    limit: shared.Limit = 50,
) -> None:
    """List places and their names, with how calls there ended.

    Sessions stated the places, or results and errors named them.
    """
    model = _read_call_model(reader)
    known: dict[str, PlaceNames] = dict(model.places) if model is not None else {}
    if place is None:
        rows: list[dict[str, Any]] = [
            {"place": name, "sessions": of.sessions, "names": len(of.names)} for name, of in sorted(known.items())
        ]
        nothing = f"Agents of tenant {reader.tenant} run no version that knows a place yet. " + (
            "Two agents have to act at it, by `fleet.session(…, place=NAME)` or by results that name it."
            if model is not None
            else _FIRST_VERSION
        )
        columns = shared.members("PLACE", ">SESSIONS", ">NAMES")
        shared.print_list(reader, "places", rows, columns, nothing=nothing, limit=limit, as_json=dict)
        return
    if place not in known:
        raise typer.BadParameter(f"nothing is known of the place {place!r}", param_hint="PLACE")
    names = sorted(known[place].names.items(), key=lambda each: (-each[1].worked, each[1].failed, each[0]))
    rows = [{"name": name, "worked": ended.worked, "failed": ended.failed} for name, ended in names]
    nothing = f"No name is known at {place}."
    columns = shared.members("NAME", ">WORKED", ">FAILED")
    shared.print_list(reader, "names", rows, columns, nothing=nothing, limit=limit, as_json=dict, place=place)


_FIRST_VERSION = (
    "The trainer publishes the first one after 40 calls that begin a session or follow a call that worked, if it "
    "foresees them better than the tools' rates of failure do. Its log says why a version was not published."
)


def _read_call_model(reader: shared.Reader) -> CallModel | None:
    from fleetlore.adapters.listing import read_weights
    from fleetlore.calls.model import CallModel
    from fleetlore.errors import ConfigError
    from fleetlore.wire.adapter_manifest import CallsManifest

    tenant = reader.tenant
    cluster, timeout = reader.settings.cluster, reader.timeout
    weights = shared.ask(read_weights(cluster, tenant, CallsManifest.name, timeout_seconds=timeout))
    try:
        return CallModel.from_bytes(weights) if weights is not None else None
    except ValueError as error:
        raise ConfigError(f"the version that agents of tenant {tenant} run cannot be read: {error}") from error
