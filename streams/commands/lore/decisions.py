"""Run `fleetlore revoke`, `fleetlore distrust` and `fleetlore decisions`."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

import msgspec
import typer

from fleetlore.cli.lore import read_lore
from fleetlore.cli.options import Json, Reader, Stack, Tenant, command
from fleetlore.cli.output import Columns, ask, moment, print_json, print_list, safe
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import DECISIONS, Decision, DecisionKind

_MAX_WHY = 500


def register(app: typer.Typer) -> None:
    for each in (revoke, distrust, decisions):
        app.command()(each)


class Lore(StrEnum):
    """Kinds of lore that can be revoked."""

    item = "item"
    pattern = "pattern"


def _why(text: str) -> str:
    if not text.strip() or len(text) > _MAX_WHY:
        raise typer.BadParameter(f"say why, in 1 to {_MAX_WHY} characters")
    return text.strip()


Why = Annotated[str, typer.Option("--why", help="Reason; it is kept with the decision.", callback=_why)]
_By = Annotated[str, typer.Option("--by", help="Author of the decision. Default: your user name.")]
Undo = Annotated[bool, typer.Option("--undo", help="Undo the decision.")]


@command
def revoke(
    reader: Reader,
    kind: Annotated[Lore, typer.Argument(help="What it is.")],
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id; the first characters are enough.")],
    why: Why,
    undo: Undo = False,
    by: _By = "",
) -> None:
    """Hide a memory item or a failure pattern from all agents.

    Agents stop showing it within a second, without a worker. It stays in Milvus and collects evidence, so `--undo`
    restores its current state.
    """
    settings, tenant = reader.settings, reader.tenant
    from streams.offline.operator_word import decide

    decided = _decision(kind.value, id, undo, by, why)
    if undo:
        id = _whole(id, [each.id for each in _newest(reader) if each.kind == kind.value], f"revoked {kind.value}")
    else:
        index = read_lore(reader)
        id = _whole(id, index.items if kind is Lore.item else index.patterns, kind.value)
    decided = msgspec.structs.replace(decided, id=id)
    ask(decide(settings, tenant, decided))
    if reader.json:
        print_json(msgspec.to_builtins(decided))
        return
    typer.echo(f"The {kind.value} {safe(id)} of tenant {tenant} is {'shown again' if undo else 'revoked'}.")


@command
def distrust(
    stack: Stack,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name in its events.")],
    why: Why,
    undo: Undo = False,
    by: _By = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Seconds to wait for the workers.")
    ] = 300.0,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Remove an agent's contributions from patterns and items.

    Its words disappear from agents within a second. The workers, which must be running, then recompute patterns and
    items without it and drop what only it supported. Its new events are stored without effect until `--undo`.
    """
    settings = stack.settings
    from streams.offline.operator_word import is_known, reconsider

    decided = _decision("agent", agent, undo, by, why)
    if not undo and not ask(is_known(settings, tenant, agent)):
        raise ConfigError(f"no agent {agent} of tenant {tenant} is known: give its name in its events")
    known = ask(reconsider(settings, tenant, decided, timeout))
    if json:
        found = {"patterns": len(known.patterns), "items": len(known.items)}
        print_json(msgspec.to_builtins(decided) | found)
        return
    done = "is trusted again" if undo else "is distrusted"
    typer.echo(
        f"The agent {safe(agent)} of tenant {tenant} {done}: "
        f"{len(known.patterns)} patterns and {len(known.items)} items considered again."
    )


@command
def decisions(reader: Reader) -> None:
    """List the newest decision about each item, pattern and agent.

    Each row shows the decision, its author, its time and its reason.
    """
    found = sorted(_newest(reader), key=lambda each: (-each.time, each.key))
    if reader.json:
        print_json([msgspec.to_builtins(each) for each in found])
    else:
        nothing = f"There are no decisions for tenant {reader.tenant}."
        print_list(reader, "decisions", found, _COLUMNS, nothing=nothing)


def _whole(beginning: str, known: Iterable[str], what: str) -> str:
    found = [id for id in known if id.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError(f"{f'{len(found)} {what}s begin' if found else f'no {what} begins'} with {beginning!r}")
    return found[0]


def _newest(reader: Reader) -> list[Decision]:
    from fleetlore.kafka.read import read_to_end
    from fleetlore.wire.topics import topic

    records = ask(read_to_end(reader.settings.cluster, [topic(reader.tenant, DECISIONS)], reader.timeout))
    newest: dict[str, Decision] = {}
    for record in records:
        with suppress(ValueError):  # another release's format
            decided = Decision.from_json(record.value or b"")
            newest[decided.key] = decided
    return list(newest.values())


_SAID = {("agent", True): "distrusted", ("agent", False): "trusted"}
_COLUMNS: Columns = {
    "WHAT": attrgetter("kind"),
    "ID": attrgetter("id"),
    "IS": lambda each: _SAID.get((each.kind, each.on), "revoked" if each.on else "shown"),
    "BY": attrgetter("by"),
    "AT (UTC)": lambda each: moment(each.time),
    "~WHY": attrgetter("why"),
}


def _decision(kind: DecisionKind, id: str, undo: bool, by: str, why: str) -> Decision:
    if not id.strip():
        raise typer.BadParameter("give the whole id or name")
    from fleetlore.redact.redact import redact

    return Decision(kind=kind, id=id, on=not undo, by=by or _own_name(), why=redact(why), time=time.time())


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id may have no name
        raise typer.BadParameter("you have no name on this machine: give --by") from None
