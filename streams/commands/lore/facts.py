"""Run `fleetlore facts load | list | forget`."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.lore import read_lore
from fleetlore.cli.options import Json, Reader, Stack, Tenant, command, group
from fleetlore.cli.output import Columns, ask, print_json, print_list

if TYPE_CHECKING:
    pass


def register(app: typer.Typer) -> None:
    """Add the group `facts`."""
    facts = group(app, "facts")
    facts.info.help = "Manage facts: what documents say of tools."
    facts.command("load")(load)
    facts.command("list")(list_)
    facts.command("forget")(forget)


@command
def load(
    stack: Stack,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", exists=True, dir_okay=False, help="Markdown (.md), JSONL (.jsonl) or text (any other)."
        ),
    ],
    tool: Annotated[str, typer.Option("--tool", help="Tool that the documents describe.")] = "",
    source: Annotated[str, typer.Option("--source", help="Name of the document. Default: its file name.")] = "",
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Load documents as facts. Loading a document of the same name again replaces its facts."""
    if source and len(files) > 1:
        raise typer.BadParameter("a name fits one document only", param_hint="--source")
    settings = stack.settings
    from models.memory.facts import read_facts
    from streams.offline.facts import load_facts

    found = [fact for file in files for fact in read_facts(file, tenant, tool, source)]
    # By their names, not by what was found: a document that says nothing any more takes back what it said.
    sources = {source or file.name for file in files}
    new, gone = ask(load_facts(settings, tenant, sources, found))
    if json:
        print_json({"tenant": tenant, "facts": len(found), "new": new, "forgotten": gone})
        return
    known = len(found) - new
    parts = [f"{new} new"] * bool(new) + [f"{known} known before"] * bool(known)
    parts += [f"{gone} older forgotten"] * bool(gone)
    names = ", ".join(source or file.name for file in files)
    typer.echo(f"{len(found)} {'fact' if len(found) == 1 else 'facts'} of {names}: {', '.join(parts) or 'none'}")


@command
def list_(
    reader: Reader,
    tool: Annotated[str | None, typer.Option("--tool", help="Show only this tool.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Show only this document.")] = None,
) -> None:
    """List the facts by document."""
    found = [
        each
        for each in read_lore(reader).items.values()
        if each.kind == "fact" and tool in (None, each.tool) and source in (None, each.source)
    ]
    found.sort(key=lambda each: (each.source, each.title, each.id))
    print_list(reader, "facts", found, _COLUMNS, nothing=f"Tenant {reader.tenant} has no such facts.")


_COLUMNS: Columns = {
    "ID": attrgetter("id"),
    "SOURCE": attrgetter("source"),
    "TOOL": lambda each: each.tool or "-",
    "~TITLE": attrgetter("title"),
}


@command
def forget(
    stack: Stack,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Full ids, as `list` shows them.")] = None,
    source: Annotated[str, typer.Option("--source", help="Forget all facts of this document.")] = "",
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Forget facts by id, or all facts of a document."""
    if not ids and not source:
        raise typer.BadParameter("give ids, or a document with --source")
    settings = stack.settings
    from streams.offline.facts import forget_facts

    gone = ask(forget_facts(settings, tenant, frozenset(ids or ()), source))
    if json:
        print_json({"tenant": tenant, "forgotten": [fact.id for fact in gone]})
        return
    typer.echo(f"{len(gone)} facts forgotten.")
