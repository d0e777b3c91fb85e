"""Show what the call model tells agents of tools: `tools`. It needs a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout, connection
from fleetlore.cli.output import ask, print_json, print_table, say_rest

if TYPE_CHECKING:
    from fleetlore.calls.document import ArgumentForms
    from fleetlore.calls.model import CallModel


class ToolFact(NamedTuple):
    """What agents are told of a tool, before a call or after it failed.

    Attributes:
        tools: that it holds for.
        about: `need`, what calls fail for; `look-up`, where what they lack is found; `form`, how arguments are written.
        agents, sessions: that it rests on; of each agent a few sessions.
    """

    tools: tuple[str, ...]
    about: str
    says: str
    agents: int
    sessions: int


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
    """List what calls of tools need, where what they lack is looked up, and how their arguments are written."""
    cluster = connection(broker, data).cluster
    from fleetlore.adapters.listing import read_weights
    from fleetlore.calls.model import CallModel
    from fleetlore.errors import ConfigError
    from fleetlore.wire.adapter_manifest import CallsManifest

    weights = ask(read_weights(cluster, tenant, CallsManifest.name, timeout_seconds=timeout))
    try:
        known = facts_of_tools(CallModel.from_bytes(weights)) if weights is not None else []
    except ValueError as error:
        raise ConfigError(f"the version that agents of tenant {tenant} run cannot be read: {error}") from error
    facts = [each for each in known if tool is None or tool in each.tools]
    if tool is not None and not facts:
        raise typer.BadParameter(f"nothing is known of the tool {tool!r}", param_hint="TOOL")
    if json:
        print_json({"tenant": tenant, "total": len(facts), "facts": [each._asdict() for each in facts[:limit]]})
        return
    if not facts:
        typer.echo(f"Agents of tenant {tenant} run no version that says anything of tools yet.")
        return
    print_table(
        ["TOOL", "ABOUT", ">AGENTS", ">SESSIONS", "~SAYS"],
        [(_some(fact.tools), fact.about, fact.agents, fact.sessions, fact.says) for fact in facts[:limit]],
    )
    say_rest(len(facts), limit)


def facts_of_tools(model: CallModel) -> list[ToolFact]:
    """What a version says of tools: needs, look-ups, then forms; of each the best backed first."""
    from fleetlore.recall.call_warning import need_text
    from fleetlore.recall.ways_out import look_up_text

    needs = [ToolFact((of.tool,), "need", need_text(of), of.agents, of.failed) for of in model.needs.values()]
    look_ups = [
        ToolFact((of.tool,), "look-up", f"after {of.kind}: {look_up_text(of)}", of.agents, of.used)
        for of in model.look_ups.values()
    ]
    # Tools often take the same argument, written in the same way.
    written: dict[tuple[str, tuple[str, ...]], list[ArgumentForms]] = {}
    for form in model.forms.values():
        written.setdefault((form.argument, form.shown), []).append(form)
    forms = [_of_forms(sorted(some, key=lambda form: (-form.sessions, form.tool))) for some in written.values()]
    return [
        each
        for some in (needs, look_ups, forms)
        for each in sorted(some, key=lambda each: (-each.agents, -each.sessions, each.tools, each.says))
    ]


def _of_forms(same: Sequence[ArgumentForms]) -> ToolFact:
    from fleetlore.recall.ways_out import form_text

    best = same[0]
    return ToolFact(tuple(form.tool for form in same), "form", form_text(best), best.agents, best.sessions)


def _some(tools: Sequence[str]) -> str:
    return tools[0] if len(tools) == 1 else f"{tools[0]} and {len(tools) - 1} more"
