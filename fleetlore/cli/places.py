"""Show what the fleet knows of places: `places`. It needs a broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.lore import read_lore
from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout
from fleetlore.cli.output import moment, print_json, print_table, say_rest

if TYPE_CHECKING:
    from fleetlore.wire.lore import MemoryItem

REJECTED = "Rejected"


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
    """List the places that sessions stated, or what results and errors told of one: names, and who met them."""
    known: dict[str, list[MemoryItem]] = defaultdict(list)
    for item in read_lore(broker, data, tenant, timeout).items.values():
        if item.kind == "place":
            known[item.place].append(item)
    if place is not None:
        if place not in known:
            raise typer.BadParameter(f"nothing is known of the place {place!r}", param_hint="PLACE")
        _show(place, known[place], tenant, limit, json)
        return
    rows = [_row(name, facts) for name, facts in sorted(known.items())]
    if json:
        print_json({"tenant": tenant, "total": len(rows), "places": rows[:limit]})
        return
    if not rows:
        typer.echo(f"No session of tenant {tenant} has stated a place, or several goals have told nothing of one yet.")
        return
    print_table(
        ["PLACE", ">KNOWN", ">REJECTED", "LAST SEEN (UTC)"],
        [(row["place"], row["known"], row["rejected"], moment(row["last_seen"])) for row in rows[:limit]],
    )
    say_rest(len(rows), limit)


def _row(place: str, facts: Sequence[MemoryItem]) -> dict[str, Any]:
    rejected = sum(map(_is_rejected, facts))
    return {
        "place": place,
        "known": len(facts) - rejected,
        "rejected": rejected,
        "last_seen": max(fact.last_seen for fact in facts),
    }


def _show(place: str, facts: list[MemoryItem], tenant: str, limit: int, json: bool) -> None:
    facts.sort(key=lambda fact: (_is_rejected(fact), -fact.agents, -fact.support, fact.title))
    if json:
        rows = [
            {
                "name": fact.title,
                "holds": not _is_rejected(fact),
                "says": fact.content,
                "agents": fact.agents,
                "sessions": fact.support,
                "against": fact.against,
                "last_seen": fact.last_seen,
                "id": fact.id,
            }
            for fact in facts[:limit]
        ]
        print_json({"tenant": tenant, "place": place, "total": len(facts), "facts": rows})
        return
    print_table(
        ["NAME", ">AGENTS", ">SESSIONS", ">AGAINST", "LAST SEEN (UTC)", "~SAYS"],
        [
            (fact.title, fact.agents, fact.support, fact.against, moment(fact.last_seen), fact.content)
            for fact in facts[:limit]
        ],
    )
    say_rest(len(facts), limit)


def _is_rejected(fact: MemoryItem) -> bool:
    return fact.content.startswith(REJECTED)
