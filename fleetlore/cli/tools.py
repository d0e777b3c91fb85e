"""Show what the call model tells agents of tools: `tools`. It needs a broker."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout, connection
from fleetlore.cli.output import ask, print_json, print_table, say_rest

if TYPE_CHECKING:
    from fleetlore.calls.model import CallModel


def register(app: typer.Typer) -> None:
    app.command()(tools)


def tools(
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Show what is known of this tool.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")] = 50,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 10.0,
    json: Json = False,
) -> None:
    """List what calls of tools need, and where what they lack is looked up."""
    from fleetlore.advice.tool_facts import facts_of_tools

    model = read_call_model(broker, data, tenant, timeout)
    known = facts_of_tools(model) if model is not None else []
    facts = [each for each in known if tool in (None, each.tool)]
    if tool is not None and not facts:
        raise typer.BadParameter(f"nothing is known of the tool {tool!r}", param_hint="TOOL")
    if json:
        print_json({"tenant": tenant, "total": len(facts), "facts": [asdict(each) for each in facts[:limit]]})
        return
    if not facts:
        typer.echo(f"Agents of tenant {tenant} run no version that says anything of tools yet.")
        return
    print_table(
        ["TOOL", "ABOUT", ">AGENTS", ">SESSIONS", "~SAYS"],
        [(fact.tool, fact.about, fact.agents, fact.sessions, fact.says) for fact in facts[:limit]],
    )
    say_rest(len(facts), limit)


def read_call_model(broker: Broker, data: Data, tenant: str, timeout: float) -> CallModel | None:
    """The version that agents of a tenant run; None before the first."""
    from fleetlore.adapters.listing import read_weights
    from fleetlore.calls.model import CallModel
    from fleetlore.errors import ConfigError
    from fleetlore.wire.adapter_manifest import CallsManifest

    cluster = connection(broker, data).cluster
    weights = ask(read_weights(cluster, tenant, CallsManifest.name, timeout_seconds=timeout))
    try:
        return CallModel.from_bytes(weights) if weights is not None else None
    except ValueError as error:
        raise ConfigError(f"the version that agents of tenant {tenant} run cannot be read: {error}") from error
