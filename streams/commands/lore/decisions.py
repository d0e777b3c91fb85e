"""Run `fleetlore revoke`, `fleetlore distrust` and `fleetlore decisions`."""

import time
from operator import attrgetter
from typing import Annotated, Literal

import msgspec
import typer

from fleetlore.cli import shared
from fleetlore.cli.lore import read_lore
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision, DecisionKind
from fleetlore.wire.principals import principal_of
from streams.commands.lore import hints
from streams.commands.lore.hints import By, Why, author, whole

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    for each in (revoke, distrust, decisions):
        app.command()(each)
    hints.register(app)


Undo = Annotated[bool, typer.Option("--undo", help="Undo the decision.")]


@shared.command
def revoke(
    reader: shared.Reader,
    kind: Annotated[Literal["item", "pattern", "hint"], typer.Argument(help="What it is.")],
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id; the first characters are enough.")],
    why: Why,
    undo: Undo = False,
    by: By = "",
) -> None:
    """Hide an item, a pattern or a hint from all agents.

    Agents stop showing it within a second, without a worker. It stays in Milvus and collects evidence, so `--undo`
    restores its current state.
    """
    settings, tenant = reader.settings, reader.tenant
    from streams.offline.operator_word import decide

    decided = _decision(settings, kind, id, undo, by, why)
    newest = {each.id: each for each in read(reader) if each.kind == kind}
    if undo or kind == "hint":
        id = whole(id, newest, f"revoked {kind}" if undo else "hint")
    else:
        index = read_lore(reader)
        id = whole(id, index.known_items if kind == "item" else index.patterns, kind)
    known = newest.get(id, decided)
    decided = msgspec.structs.replace(decided, id=id, hint=known.hint, wording=known.wording)
    shared.ask(decide(settings, tenant, decided))
    text = f"The {kind} {shared.safe(id)} of tenant {tenant} is {'no longer revoked' if undo else 'revoked'}."
    shared.print_result(reader.json, msgspec.to_builtins(decided), text)


@shared.command
def distrust(
    stack: shared.Stack,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name in its events.")],
    why: Why,
    undo: Undo = False,
    by: By = "",
    timeout: shared.Workers = 300.0,
    tenant: shared.Tenant = "default",
    json: shared.Json = False,
) -> None:
    """Remove an agent's contributions from patterns and items.

    Its words disappear from agents within a second. The workers, which must be running, then recompute patterns and
    items without it and drop what only it supported. Its new events are stored without effect until `--undo`.
    """
    settings = stack.settings
    from fleetlore.redact.redact import stored_name
    from streams.offline.operator_word import is_known, read_decisions, reconsider

    agent = stored_name(agent)
    decided = _decision(settings, "agent", agent, undo, by, why)
    wrote = any(
        each.hint is not None and principal_of(each.hint.author) == principal_of(agent)
        for each in shared.ask(read_decisions(settings, tenant, timeout))
    )
    if not undo and not wrote and not shared.ask(is_known(settings, tenant, agent)):
        raise ConfigError(f"no agent {agent} of tenant {tenant} is known: give its name in its events")
    known = shared.ask(reconsider(settings, tenant, decided, timeout))
    found = {"patterns": len(known.patterns), "items": len(known.items)}
    done = "is trusted again" if undo else "is distrusted"
    text = f"{found['patterns']} patterns and {found['items']} items considered again."
    text = f"The agent {shared.safe(agent)} of tenant {tenant} {done}: {text}"
    shared.print_result(json, msgspec.to_builtins(decided) | found, text)


@shared.command
def decisions(
    reader: shared.Reader,
    history: Annotated[
        bool, typer.Option("--history", help="Every decision, oldest first; with --json one JSON object a line.")
    ] = False,
) -> None:
    """List the newest decision about each thing.

    Things are items, patterns, hints and agents. Each row shows the decision, its author, its time and its reason.
    """
    found = read(reader, HISTORY) if history else sorted(read(reader), key=lambda each: (-each.time, each.key))
    if not reader.json:
        nothing = f"There are no decisions for tenant {reader.tenant}."
        shared.print_list(reader, "decisions", found, _COLUMNS, nothing=nothing)
        return
    made = msgspec.to_builtins(found)
    for each in made if history else [made]:
        shared.print_json(each)


def read(reader: shared.Reader, name: str = DECISIONS) -> list[Decision]:
    from streams.offline.operator_word import read_decisions

    return shared.ask(read_decisions(reader.settings, reader.tenant, reader.timeout, name))


_COLUMNS: shared.Columns = {
    "WHAT": attrgetter("kind"),
    "ID": attrgetter("id"),
    "IS": attrgetter("effect"),
    "BY": attrgetter("by"),
    "AT (UTC)": lambda each: shared.moment(each.time),
    "~WHY": attrgetter("why"),
}


def _decision(settings: Settings, kind: DecisionKind, id: str, undo: bool, by: str, why: str) -> Decision:
    if not id.strip():
        raise typer.BadParameter("give the whole id or name")
    from fleetlore.redact.redact import redact

    return Decision(kind=kind, id=id, on=not undo, by=author(settings, by), why=redact(why), time=time.time())
