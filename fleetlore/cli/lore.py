"""Run `health`, `patterns` and `items`."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fleetlore.cli import shared
from fleetlore.wire.lore import PATTERN_LEVELS, ItemKind, Level, MemoryItem, Pattern
from fleetlore.wire.stats import Group, Window, calls_of, failed_of, figure, tools_of
from fleetlore.wire.stats import health as health_of
from fleetlore.words import count

if TYPE_CHECKING:
    from fleetlore.recall.index import LoreIndex
    from fleetlore.recall.search import LoreSearch

__all__ = ["read_lore"]


T = TypeVar("T", MemoryItem, Pattern)


def _with_words(text: str | None) -> str | None:
    if text is not None and not any(each.isalnum() for each in text):
        raise typer.BadParameter(f"{text!r} has no word to search for")
    return text


_Searched = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="TEXT",
        help="Search the store (FLEETLORE_MILVUS) for this text, best match first. Needs the extra [recall].",
        callback=_with_words,
    ),
]


@shared.command
def health(
    reader: shared.Reader,
    by: Annotated[Group, typer.Option("--by", help="Group calls by this.")] = "tool",
    hours: Annotated[
        int | None, typer.Option("--hours", min=1, max=24, help="Count only the last HOURS; up to 12 show a trend.")
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=14, help="Count only the last DAYS; up to 7 show a trend.")
    ] = None,
) -> None:
    """Show how often calls fail, with intervals, errors and trend.

    WORLD says which texts of a tool may teach other agents. `closed` (FLEETLORE_CLOSED_TOOLS): texts that a quorum
    received. `SQL`: the same, if the call is one statement. `open`: only words that agents used themselves.
    """
    if hours is not None and days is not None:
        raise typer.BadParameter("give --hours or --days, not both")
    window = Window("hours", hours) if hours is not None else Window("days", days) if days is not None else None
    from fleetlore.calls.call import world_of

    rows = health_of(read_lore(reader).patterns.values(), by, window)
    listed = reader.settings.closed_tools
    columns: shared.Columns = {
        f"~{by.upper()}": attrgetter("tool"),
        **({"WORLD": lambda each: world_of(each.tool, listed)} if by == "tool" else {}),
        ">CALLS": lambda each: figure(each.calls, each.estimated),
        ">FAILED": lambda each: figure(each.failures, each.estimated),
        ">RATE": lambda each: f"{each.rate:.1%}",
        ">95 %": lambda each: f"{each.low:.0%}–{each.high:.0%}",
        **({"TREND": attrgetter("trend")} if window is not None else {}),
        "~COMMONEST ERRORS": lambda each: ", ".join(f"{name} ×{times}" for name, times in each.errors) or "-",
        "LAST SEEN (UTC)": lambda each: shared.moment(each.last_seen),
    }
    nothing = f"No calls of tenant {reader.tenant} are known yet."
    shared.print_list(reader, f"{by}s", rows, columns, nothing=nothing, window=window and asdict(window))


@shared.command
def patterns(
    reader: shared.Reader,
    pattern_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this pattern in full; its first characters are enough.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Show only this tool.")] = None,
    level: Annotated[
        Level, typer.Option("--level", help="Level of detail: family > class > exact. tool and call count calls.")
    ] = "class",
    search: _Searched = None,
    limit: shared.Limit = 20,
) -> None:
    """List failure patterns: what failed, how often, and for whom.

    Each row also counts the tool's calls, and the sessions and agents with the failure.
    """
    scores: dict[str, float] = {}
    if search is None:
        known = list(read_lore(reader).patterns.values())
    elif pattern_id is not None:
        raise typer.BadParameter("give an ID or --search, not both", param_hint="--search")
    elif level not in PATTERN_LEVELS:
        raise typer.BadParameter(f"{level} rows are counts and have no text", param_hint="--level")
    else:
        known, scores = _found(
            reader,
            lambda store: store.patterns(search, level=level, tool=tool, least=limit, timeout_seconds=reader.timeout),
        )
    tools = tools_of(known)
    if pattern_id is not None:
        pattern = shared.only(known, "id", pattern_id, "pattern")
        _show_pattern(reader, pattern, tools.get(pattern.tool))
        return
    chosen = [each for each in known if each.level == level and tool in (None, each.tool)]
    if search is None:
        chosen.sort(key=lambda each: (-each.failures, each.id))

    def calls(pattern: Pattern) -> str:
        of = calls_of(pattern, tools.get(pattern.tool))
        return figure(of.calls, "all" in of.estimated) if of else "-"

    columns: shared.Columns = {
        "ID": lambda each: each.id[:12],
        "TOOL": attrgetter("tool"),
        ">FAILED": lambda each: figure(each.failures, "all" in each.estimated),
        ">OF CALLS": calls,
        ">SESSIONS": lambda each: figure(each.sessions, "all" in each.estimated),
        ">AGENTS": attrgetter("agents"),
        "LAST SEEN (UTC)": lambda each: shared.moment(each.last_seen),
        "~PATTERN": lambda each: _said(each, tools.get(each.tool)),
    }
    nothing, document = f"No {level} pattern of tenant {reader.tenant} matches.", partial(_document, scores)
    shared.print_list(reader, "patterns", chosen, columns, nothing=nothing, limit=limit, as_json=document)


def _said(pattern: Pattern, tool: Pattern | None) -> str:
    from fleetlore.recall.index import worth_showing

    # Templates of exceptions omit their class.
    error_class = pattern.error_class if pattern.error_class[:1].isupper() else ""
    said = ": ".join(filter(None, (error_class, pattern.template))) or pattern.error_class
    parts = [part for part in (said, pattern.shape and f"[{pattern.shape}]") if part]
    if pattern.transient:
        parts.append("(transient)")
    elif pattern.level in PATTERN_LEVELS and not worth_showing(pattern, tool):
        parts.append("(harmless)")
    return " ".join(parts) or "-"


@shared.command
def items(
    reader: shared.Reader,
    item_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this item in full; its first characters are enough.")
    ] = None,
    search: _Searched = None,
    kind: Annotated[ItemKind | None, typer.Option("--kind", help="Show only this kind.")] = None,
    limit: shared.Limit = 20,
) -> None:
    """List what the fleet has learned, the best backed first.

    Items that several agents found independently come first, how-tos last.
    """
    if item_id is not None and search is not None:
        raise typer.BadParameter("give an ID or --search, not both", param_hint="--search")
    scores: dict[str, float] = {}
    corrected: dict[str, str] = {}
    if search is not None:
        chosen, scores = _found(
            reader, lambda store: store.items(search, kind=kind, least=limit, timeout_seconds=reader.timeout)
        )
    else:
        index = read_lore(reader)
        corrected, known = index.hints.replaced, index.known_items
        listed = known if item_id is not None else [*index.items, *(corrected.keys() & known)]
        chosen = [known[id] for id in listed if kind in (None, known[id].kind)]
        chosen.sort(key=lambda each: each.worth(), reverse=True)
    if item_id is not None:
        _show_item(reader, shared.only(chosen, "id", item_id, "item"), corrected)
        return
    nothing, document = f"No item of tenant {reader.tenant} matches.", partial(_document, scores)
    columns: shared.Columns = {
        "ID": lambda each: each.id[:12],
        "KIND": attrgetter("kind"),
        ">SESSIONS": attrgetter("support"),
        ">AGENTS": attrgetter("agents"),
        "LAST SEEN (UTC)": lambda each: shared.moment(each.last_seen),
        "~TITLE": lambda each: ("(corrected) " if each.id in corrected else "") + each.title,
    }
    shared.print_list(reader, "items", chosen, columns, nothing=nothing, limit=limit, as_json=document)


def _show_pattern(reader: shared.Reader, pattern: Pattern, tool: Pattern | None) -> None:
    facts: dict[str, Any] = {name: getattr(pattern, name) for name in ("id", "level", "tool")}
    facts |= {"class": pattern.error_class, "coarser": pattern.parent, "failed": f"{failed_of(pattern, tool)} calls"}
    facts |= {"met by": _backed(pattern.sessions, pattern.agents), "last seen": shared.moment(pattern.last_seen)}
    _show(reader, pattern, shared.safe(_said(pattern, None)), facts)


def _backed(sessions: int, agents: int) -> str:
    return f"{count(sessions, 'session')}, {count(agents, 'agent')}"


def _show(reader: shared.Reader, entry: MemoryItem | Pattern, title: str, facts: dict[str, Any]) -> None:
    if reader.json:
        shared.print_json(asdict(entry))
        return
    typer.echo(f"{title}\n")
    for name, value in facts.items():
        if value:
            typer.echo(f"{name:<10} {shared.safe(str(value))}")


def _show_item(reader: shared.Reader, item: MemoryItem, corrected: Mapping[str, str]) -> None:
    facts: dict[str, Any] = {name: getattr(item, name) for name in ("id", "kind", "when", "tool", "task", "pattern")}
    facts |= {"support": _backed(item.support, item.agents), "sessions": ", ".join(item.sessions)}
    facts |= {
        "first seen": shared.moment(item.first_seen),
        "last seen": shared.moment(item.last_seen),
        "version": item.version,
    }
    facts["corrected"] = corrected.get(item.id, "")
    title = f"{shared.safe(item.title)}\n{shared.safe(item.description)}\n\n{shared.safe_lines(item.content)}"
    _show(reader, item, title, facts)


def read_lore(reader: shared.Reader) -> LoreIndex:
    cluster = reader.settings.cluster
    from fleetlore.recall.replica import LoreReplica

    index = shared.ask(LoreReplica.snapshot(cluster, reader.tenant, timeout_seconds=reader.timeout))
    index.end_corrections(time.time())
    return index


def _found(
    reader: shared.Reader, search: Callable[[LoreSearch], Coroutine[Any, Any, list[tuple[float, T]]]]
) -> tuple[list[T], dict[str, float]]:
    settings = reader.settings
    from fleetlore.recall.search import LoreSearch

    with closing(LoreSearch(settings, reader.tenant)) as store:
        matches = shared.ask(search(store))
    return [found for _, found in matches], {found.id: round(score, 4) for score, found in matches}


def _document(scores: dict[str, float], of: MemoryItem | Pattern) -> dict[str, Any]:
    return asdict(of) | ({"score": scores[of.id]} if scores else {})
