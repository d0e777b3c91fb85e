"""Show what the call model knows of places: `places`. It needs a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout
from fleetlore.cli.output import print_json, print_table, say_rest
from fleetlore.cli.tools import read_call_model

if TYPE_CHECKING:
    from fleetlore.calls.places import PlaceNames


def register(app: typer.Typer) -> None:
    app.command()(places)


def places(
    place: Annotated[str | None, typer.Argument(metavar="[PLACE]", help="Show the names known at this place.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")] = 50,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 10.0,
    json: Json = False,
) -> None:
    """List the places that sessions stated, or what results and errors told of one: names, and how calls with them
    ended.
    """
    model = read_call_model(broker, data, tenant, timeout)
    known: dict[str, PlaceNames] = dict(model.places) if model is not None else {}
    if place is not None:
        if place not in known:
            raise typer.BadParameter(f"nothing is known of the place {place!r}", param_hint="PLACE")
        names = sorted(known[place].names.items(), key=lambda each: (-each[1].worked, each[1].failed, each[0]))
        rows = [{"name": name, "worked": ended.worked, "failed": ended.failed} for name, ended in names]
    else:
        rows = [{"place": name, "sessions": of.sessions, "names": len(of.names)} for name, of in sorted(known.items())]
    if json:
        whose = {"tenant": tenant} if place is None else {"tenant": tenant, "place": place}
        print_json({**whose, "total": len(rows), "places" if place is None else "names": rows[:limit]})
    elif not rows:
        typer.echo(f"Agents of tenant {tenant} run no version that knows a place yet.")
    else:
        head = ["PLACE", ">SESSIONS", ">NAMES"] if place is None else ["NAME", ">WORKED", ">FAILED"]
        print_table(head, [tuple(row.values()) for row in rows[:limit]])
        say_rest(len(rows), limit)
