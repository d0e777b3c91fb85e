"""Read the adapter topics: `adapters list`, `adapters show`. Other packages add commands to the group."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import typer

from fleetlore.cli.options import Adapter, Reader, Version, command
from fleetlore.cli.output import Columns, ask, moment, print_json, print_list, safe

if TYPE_CHECKING:
    from fleetlore.adapters.listing import AdapterListing

_SHORT = 12
_MOST_NAMES = 20
# In a row of the list; `show` has all.
_MOST_FIGURES = 3


def register(app: typer.Typer) -> None:
    adapters = typer.Typer(no_args_is_help=True, help="Show and control adapter versions.")
    adapters.command("list")(list_)
    adapters.command("show")(show)
    app.add_typer(adapters, name="adapters")


@command
def list_(reader: Reader, adapter: Adapter = None) -> None:
    """List all versions, oldest first, and who runs them."""
    listing = _read(reader, adapter)
    print_list(
        reader,
        "versions",
        [_row(listing, manifest) for manifest in listing.manifests],
        _COLUMNS,
        nothing=f"No adapter of tenant {reader.tenant} is published yet.",
        as_json=dict,
        pointers=list(listing.pointers),
    )


@command
def show(reader: Reader, version: Version, adapter: Adapter = None) -> None:
    """Show one version: its lineage, metrics and agents.

    Signatures are not checked.
    """
    listing = _read(reader, adapter)
    found = [each for each in listing.manifests if version and str(each.get("version", "")).startswith(version)]
    if len(found) != 1:
        reason = "no version begins" if not found else f"{len(found)} versions begin"
        raise typer.BadParameter(f"{reason} with {version!r}", param_hint="VERSION")
    row = _row(listing, found[0])
    acks = [ack for ack in listing.acks if str(ack.get("version")) == row["version"]]
    running = sorted(str(ack.get("agent")) for ack in acks if ack.get("result") == "applied")
    refused = sorted(f"{ack.get('agent')} ({ack.get('result')})" for ack in acks if ack.get("result") != "applied")
    lineage = _lineage(listing, row["version"])
    if reader.json:
        said = {name: row[name] for name in ("channels", "agents_running")}
        print_json({**found[0], **said, "lineage": lineage, "running": running, "refused": refused})
        return
    facts = {name: row[name] for name in ("adapter", "version", "ordinal", "channels", "sessions")}
    facts |= {"lineage": " ← ".join(each[:_SHORT] for each in lineage)}
    facts |= {"run by": _some(running), "not run by": _some(refused)}
    facts |= {
        name: found[0].get(name)
        for name in ("agents", "calls", "tools", "rank", "alpha", "size_bytes", "encoder", "base_sha256", "key_id")
        if name in found[0]  # the rest is of the other adapter
    }
    facts |= {"created": moment(row["created"]), "gate": _figures(row["metrics"])}
    facts |= {"learned from": [_range(each) for each in found[0].get("data", []) if isinstance(each, dict)]}
    for name, value in facts.items():
        text = (
            ", ".join(str(each) for each in value)
            if isinstance(value, list | tuple)
            else "-"
            if value is None
            else str(value)
        )
        typer.echo(f"{name:<15} {safe(text) or '-'}")


def _lineage(listing: AdapterListing, version: str) -> list[str]:
    """The version and its ancestors; of one that is no longer kept only the name is left."""
    parents = {str(each.get("version")): each.get("parent") for each in listing.manifests}
    lineage = [version]
    while (parent := parents.get(lineage[-1])) is not None and str(parent) not in lineage:
        lineage.append(str(parent))
    return lineage


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(names)}: {', '.join(names[:_MOST_NAMES])}{more}" if names else "-"


def _row(listing: AdapterListing, manifest: dict[str, Any]) -> dict[str, Any]:
    """What a table shows of a manifest. Published by somebody, perhaps by another release: no field is certain."""
    version = str(manifest.get("version", ""))
    metrics, created = manifest.get("metrics"), manifest.get("created")
    running = Counter(str(ack.get("version")) for ack in listing.acks if ack.get("result") == "applied")
    return {
        "adapter": str(manifest.get("name", "")),
        "version": version,
        "ordinal": manifest.get("ordinal", 0),
        "parent": manifest.get("parent"),
        "created": created if isinstance(created, int | float) else 0.0,
        "sessions": manifest.get("sessions", 0),
        "channels": sorted(_channel(each) for each in listing.pointers if each.get("version") == version)
        + ["revoked" for each in listing.revocations if each.get("what") == version],
        "agents_running": running[version],
        "metrics": metrics if isinstance(metrics, dict) else {},
    }


def _channel(pointer: dict[str, Any]) -> str:
    share, name = pointer.get("share"), str(pointer.get("channel"))
    if name == "canary" and isinstance(share, int | float):
        name += f" {share:.0%}"
    return f"{name} (pinned)" if pointer.get("pinned") is True else name


def _figures(metrics: dict[str, Any], most: int | None = None) -> str:
    shown = [f"{name} {value:.3g}" for name, value in sorted(metrics.items()) if isinstance(value, int | float)]
    return ", ".join(shown[:most]) or "-"


def _range(each: dict[str, Any]) -> str:
    return f"{each.get('topic')}[{each.get('partition')}] {each.get('start')}–{each.get('stop')}"


_COLUMNS: Columns = {
    "ADAPTER": itemgetter("adapter"),
    ">#": itemgetter("ordinal"),
    "VERSION": lambda row: row["version"][:_SHORT],
    "PARENT": lambda row: (row["parent"] or "-")[:_SHORT],
    "CHANNELS": lambda row: ", ".join(row["channels"]) or "-",
    ">AGENTS": itemgetter("agents_running"),
    ">SESSIONS": itemgetter("sessions"),
    "CREATED (UTC)": lambda row: moment(row["created"]),
    "~GATE": lambda row: _figures(row["metrics"], _MOST_FIGURES),
}


def _read(reader: Reader, adapter: Adapter) -> AdapterListing:
    cluster = reader.settings.cluster
    from fleetlore.adapters.listing import read_adapters

    listing = ask(read_adapters(cluster, reader.tenant, timeout_seconds=reader.timeout))
    return listing.of(adapter) if adapter is not None else listing
