"""Show what the call model tells agents of `tools` and `places`. It needs a broker."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.options import Limit, Reader, command
from fleetlore.cli.output import Columns, ask, print_list

if TYPE_CHECKING:
    from fleetlore.calls.model import CallModel
    from fleetlore.calls.places import PlaceNames


_TOOL_COLUMNS: Columns = {
    "TOOL": attrgetter("tool"),
    "ABOUT": attrgetter("about"),
    ">AGENTS": attrgetter("agents"),
    ">SESSIONS": attrgetter("sessions"),
    "~SAYS": attrgetter("says"),
}
_Row = dict[str, Any]
_PLACE_COLUMNS: Columns = {
    "PLACE": itemgetter("place"),
    ">SESSIONS": itemgetter("sessions"),
    ">NAMES": itemgetter("names"),
}
_NAME_COLUMNS: Columns = {
    "NAME": itemgetter("name"),
    ">WORKED": itemgetter("worked"),
    ">FAILED": itemgetter("failed"),
}


def register(app: typer.Typer) -> None:
    for each in (places, tools):
        app.command()(each)


@command
def tools(
    reader: Reader,
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Show what is known of this tool.")] = None,
    limit: Limit = 50,
) -> None:
    """List what calls of tools need, and where it is looked up."""
    from fleetlore.advice.at_start import facts_of_tools

    model = _read_call_model(reader)
    known = facts_of_tools(model) if model is not None else []
    facts = [each for each in known if tool in (None, each.tool)]
    if tool is not None and not facts:
        raise typer.BadParameter(f"nothing is known of the tool {tool!r}", param_hint="TOOL")
    nothing = f"Agents of tenant {reader.tenant} run no version that says anything of tools yet."
    print_list(reader, "facts", facts, _TOOL_COLUMNS, nothing=nothing, limit=limit, as_json=asdict)


@command
def places(
    reader: Reader,
    place: Annotated[str | None, typer.Argument(metavar="[PLACE]", help="Show the names known at this place.")] = None,
    limit: Limit = 50,
) -> None:
    """List places and their names, with how calls there ended.

    Sessions stated them, or results and errors told of one.
    """
    model = _read_call_model(reader)
    known: dict[str, PlaceNames] = dict(model.places) if model is not None else {}
    if place is None:
        rows: list[_Row] = [
            {"place": name, "sessions": of.sessions, "names": len(of.names)} for name, of in sorted(known.items())
        ]
        nothing = f"Agents of tenant {reader.tenant} run no version that knows a place yet."
        print_list(reader, "places", rows, _PLACE_COLUMNS, nothing=nothing, limit=limit, as_json=dict)
        return
    if place not in known:
        raise typer.BadParameter(f"nothing is known of the place {place!r}", param_hint="PLACE")
    names = sorted(known[place].names.items(), key=lambda each: (-each[1].worked, each[1].failed, each[0]))
    rows = [{"name": name, "worked": ended.worked, "failed": ended.failed} for name, ended in names]
    nothing = f"No name is known at {place}."
    print_list(reader, "names", rows, _NAME_COLUMNS, nothing=nothing, limit=limit, as_json=dict, place=place)


def _read_call_model(reader: Reader) -> CallModel | None:
    """The version that agents of a tenant run; None before the first."""
    from fleetlore.adapters.listing import read_weights
    from fleetlore.calls.model import CallModel
    from fleetlore.errors import ConfigError
    from fleetlore.wire.adapter_manifest import CallsManifest

    tenant = reader.tenant
    weights = ask(read_weights(reader.settings.cluster, tenant, CallsManifest.name, timeout_seconds=reader.timeout))
    try:
        return CallModel.from_bytes(weights) if weights is not None else None
    except ValueError as error:
        raise ConfigError(f"the version that agents of tenant {tenant} run cannot be read: {error}") from error
