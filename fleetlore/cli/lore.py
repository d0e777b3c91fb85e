"""Run `health`, `patterns` and `items`, which read the lore. They need a broker, and to search Milvus instead."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout, connection
from fleetlore.cli.output import ask, moment, print_json, print_table, safe, safe_lines, say_rest

if TYPE_CHECKING:
    from fleetlore.recall.index import LoreIndex
    from fleetlore.store.search import LoreSearch
    from fleetlore.wire.lore import MemoryItem, Pattern


class LevelName(StrEnum):
    family = "family"
    class_ = "class"
    exact = "exact"
    call = "call"
    tool = "tool"


class PatternOrder(StrEnum):
    failures = "failures"
    sessions = "sessions"
    agents = "agents"
    last = "last"


class GroupName(StrEnum):
    tool = "tool"
    error = "error"
    agent = "agent"
    tenant = "tenant"


class KindName(StrEnum):
    recovery = "recovery"
    strategy = "strategy"
    fact = "fact"


T = TypeVar("T", "MemoryItem", "Pattern")


def _with_words(text: str | None) -> str | None:
    if text is not None and not any(each.isalnum() for each in text):
        raise typer.BadParameter(f"{text!r} has no word to search for")
    return text


Searched = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="TEXT",
        help="Search the store (FLEETLORE_MILVUS) for this text, best match first. Needs the extra [recall].",
        callback=_with_words,
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")]


def register(app: typer.Typer) -> None:
    app.command()(health)
    app.command()(patterns)
    app.command()(items)


def health(
    by: Annotated[GroupName, typer.Option("--by", help="Group calls by this.")] = GroupName.tool,
    hours: Annotated[
        int | None, typer.Option("--hours", min=1, max=24, help="Count only the last HOURS; up to 12 show a trend.")
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=14, help="Count only the last DAYS; up to 7 show a trend.")
    ] = None,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 10.0,
    json: Json = False,
) -> None:
    """Show how often calls fail, with confidence intervals, errors and trend."""
    from fleetlore.stats.health import DEGRADED_RULE, Window, figure
    from fleetlore.stats.health import health as health_of

    if hours is not None and days is not None:
        raise typer.BadParameter("give --hours or --days, not both")
    window = Window("hours", hours) if hours is not None else Window("days", days) if days is not None else None
    if window is not None and by is GroupName.agent:
        raise typer.BadParameter(
            "agents are counted over the last 14 days; no other window is available", param_hint="--by"
        )
    rows = health_of(read_lore(broker, data, tenant, timeout).patterns.values(), by.value, window)
    if json:
        shown = asdict(window) if window is not None else None
        groups = {f"{by.value}s": [asdict(each) for each in rows]}
        print_json({"tenant": tenant, "window": shown, "degraded_rule": DEGRADED_RULE} | groups)
        return
    if not rows:
        typer.echo(f"No calls of tenant {tenant} are known yet.")
        return
    columns = [
        f"~{by.value.upper()}",
        ">CALLS",
        ">FAILED",
        ">RATE",
        ">95 %",
        "~COMMONEST ERRORS",
        "LAST SEEN (UTC)",
        "",
    ]
    if window is not None:
        columns.insert(5, "TREND")
    print_table(
        columns,
        [
            (
                each.tool,
                figure(each.calls, each.estimated),
                figure(each.failures, each.estimated),
                f"{each.rate:.1%}",
                f"{each.low:.0%}–{each.high:.0%}",
                *((each.trend,) if window is not None else ()),
                ", ".join(f"{name} ×{times}" for name, times in each.errors) or "-",
                moment(each.last_seen) if each.last_seen else "-",
                "[degraded]" if each.degraded else "",
            )
            for each in rows
        ],
    )
    if any(each.degraded for each in rows):
        typer.echo(f"\n{DEGRADED_RULE}")


def patterns(
    pattern_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this pattern in full; its first characters are enough.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Show only this tool.")] = None,
    level: Annotated[
        LevelName, typer.Option("--level", help="Level of detail: family > class > exact. tool and call count calls.")
    ] = LevelName.class_,
    text: Annotated[
        str | None,
        typer.Option("--text", help="Show only patterns with this text in their error, its class or the arguments."),
    ] = None,
    search: Searched = None,
    sort: Annotated[
        PatternOrder | None, typer.Option("--sort", help="Sort by this, largest first. Default: failures.")
    ] = None,
    limit: Limit = 20,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 10.0,
    json: Json = False,
) -> None:
    """List failure patterns: how many calls of the tool failed so, in how many sessions and of how many agents."""
    from fleetlore.stats.health import calls_of, figure, tools_of
    from fleetlore.wire.lore import PATTERN_LEVELS

    scores: dict[str, float] = {}
    if pattern_id is not None:
        if search is not None:
            raise typer.BadParameter("give an ID or --search, not both", param_hint="--search")
        known = list(read_lore(broker, data, tenant, timeout).patterns.values())
        pattern = _one(known, pattern_id, "pattern")
        _show_pattern(pattern, tools_of(known).get(pattern.tool), json)
        return
    if search is not None:
        if level.value not in PATTERN_LEVELS:
            raise typer.BadParameter(f"{level.value} rows are counts and have no text", param_hint="--level")
        if sort is not None:
            raise typer.BadParameter("what is searched is sorted by how well it matches", param_hint="--sort")
        lore_patterns, scores = _found(
            broker,
            data,
            tenant,
            lambda store: store.patterns(search, level=level.value, tool=tool, least=limit, timeout_seconds=timeout),
        )
    else:
        lore_patterns = list(read_lore(broker, data, tenant, timeout).patterns.values())
    chosen = [
        each
        for each in lore_patterns
        if each.level == level.value
        and (tool is None or each.tool == tool)
        and (text is None or text.casefold() in f"{each.error_class}\n{each.template}\n{each.shape}".casefold())
    ]
    if search is None:
        field = "last_seen" if sort is PatternOrder.last else (sort or PatternOrder.failures).value
        chosen.sort(key=lambda each: (-getattr(each, field), each.id))
    shown = chosen[:limit]
    if json:
        print_json({"tenant": tenant, "total": len(chosen), "patterns": _rows(shown, scores)})
        return
    if not shown:
        typer.echo(f"No {level.value} pattern of tenant {tenant} matches.")
        return
    tools = tools_of(lore_patterns)
    columns = [
        "ID",
        "TOOL",
        ">FAILED",
        # Of a failure's pattern those of its tool: of its own calls all failed.
        ">OF CALLS",
        ">SESSIONS",
        ">AGENTS",
        "LAST SEEN (UTC)",
        "~PATTERN",
    ]
    print_table(
        columns,
        [
            (
                each.id[:12],
                each.tool,
                figure(each.failures, "all" in each.estimated),
                figure(of.calls, "all" in of.estimated) if (of := calls_of(each, tools.get(each.tool))) else "-",
                figure(each.sessions, "all" in each.estimated),
                each.agents,
                moment(each.last_seen),
                _said(each, tools.get(each.tool)),
            )
            for each in shown
        ],
    )
    say_rest(len(chosen), limit)


def _said(pattern: Pattern, tool: Pattern | None) -> str:
    from fleetlore.recall.index import worth_showing
    from fleetlore.wire.lore import PATTERN_LEVELS

    # An exception's template is without its class, and the text of some is nothing but a name.
    error_class = pattern.error_class if pattern.error_class[:1].isupper() else ""
    said = ": ".join(filter(None, (error_class, pattern.template))) or pattern.error_class
    parts = [part for part in (said, pattern.shape and f"[{pattern.shape}]") if part]
    if pattern.transient:
        parts.append("(transient)")
    elif pattern.level in PATTERN_LEVELS and not worth_showing(pattern, tool):
        parts.append("(harmless)")
    return " ".join(parts) or "-"


def items(
    item_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this item in full; its first characters are enough.")
    ] = None,
    search: Searched = None,
    kind: Annotated[KindName | None, typer.Option("--kind", help="Show only this kind.")] = None,
    limit: Limit = 20,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 10.0,
    json: Json = False,
) -> None:
    """List what the fleet has learned: first what several agents had to find out at several goals, last how-tos."""
    if item_id is not None and search is not None:
        raise typer.BadParameter("give an ID or --search, not both", param_hint="--search")
    scores: dict[str, float] = {}
    if search is not None:
        chosen, scores = _found(
            broker,
            data,
            tenant,
            lambda store: store.items(
                search, kind=None if kind is None else kind.value, least=limit, timeout_seconds=timeout
            ),
        )
    else:
        lore_items = read_lore(broker, data, tenant, timeout).items.values()
        chosen = [each for each in lore_items if kind is None or each.kind == kind.value]
        chosen.sort(key=lambda each: each.worth(), reverse=True)
    if item_id is not None:
        _show_item(_one(chosen, item_id, "item"), json)
        return
    shown = chosen[:limit]
    if json:
        print_json({"tenant": tenant, "total": len(chosen), "items": _rows(shown, scores)})
        return
    if not shown:
        typer.echo(f"No item of tenant {tenant} matches.")
        return
    columns = ["ID", "KIND", ">SESSIONS", ">AGENTS", "LAST SEEN (UTC)", "~TITLE"]
    print_table(
        columns,
        [(each.id[:12], each.kind, each.support, each.agents, moment(each.last_seen), each.title) for each in shown],
    )
    say_rest(len(chosen), limit)


def _one(entries: Sequence[T], beginning: str, what: str) -> T:
    """The entry whose id begins so."""
    found = [each for each in entries if each.id.startswith(beginning)]
    if len(found) != 1:
        reason = f"no {what} begins" if not found else f"{len(found)} {what}s begin"
        raise typer.BadParameter(f"{reason} with {beginning!r}", param_hint="ID")
    return found[0]


def _show_pattern(pattern: Pattern, tool: Pattern | None, json: bool) -> None:
    from fleetlore.stats.health import failed_of

    if json:
        print_json(asdict(pattern))
        return
    facts: dict[str, Any] = {
        "id": pattern.id,
        "level": pattern.level,
        "tool": pattern.tool,
        "class": pattern.error_class,
        "coarser": pattern.parent,
        "failed": f"{failed_of(pattern, tool)} calls",
        "met by": _backed(pattern.sessions, pattern.agents),
        "last seen": moment(pattern.last_seen),
    }
    typer.echo(f"{safe(_said(pattern, None))}\n")
    _print_facts(facts)


def _backed(sessions: int, agents: int) -> str:
    from fleetlore.recall.hints import count

    return f"{count(sessions, 'session')}, {count(agents, 'agent')}"


def _print_facts(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if value:
            typer.echo(f"{name:<10} {safe(str(value))}")


def _show_item(item: MemoryItem, json: bool) -> None:
    if json:
        print_json(asdict(item))
        return
    facts: dict[str, Any] = {
        "id": item.id,
        "kind": item.kind,
        "when": item.when,
        "tool": item.tool,
        "task": item.task,
        "pattern": item.pattern,
        "support": _backed(item.support, item.agents),
        "sessions": ", ".join(item.sessions),
        "first seen": moment(item.first_seen),
        "last seen": moment(item.last_seen),
        "version": item.version,
    }
    typer.echo(f"{safe(item.title)}\n{safe(item.description)}\n\n{safe_lines(item.content)}\n")
    _print_facts(facts)


def read_lore(broker: Broker, data: Data, tenant: str, timeout: float) -> LoreIndex:
    """What the agents of a tenant know now."""
    cluster = connection(broker, data).cluster
    from fleetlore.recall.replica import LoreReplica

    return ask(LoreReplica.snapshot(cluster, tenant, timeout_seconds=timeout))


def _found(
    broker: Broker, data: Data, tenant: str, search: Callable[[LoreSearch], Coroutine[Any, Any, list[tuple[float, T]]]]
) -> tuple[list[T], dict[str, float]]:
    """What a search of the store finds, and its scores by id."""
    settings = connection(broker, data)
    from fleetlore.store.search import LoreSearch

    store = LoreSearch(settings, tenant)
    try:
        matches = ask(search(store))
    finally:
        store.close()
    return [found for _, found in matches], {found.id: round(score, 4) for score, found in matches}


def _rows(shown: Sequence[MemoryItem] | Sequence[Pattern], scores: dict[str, float]) -> list[dict[str, Any]]:
    return [asdict(each) | ({"score": scores[each.id]} if scores else {}) for each in shown]
