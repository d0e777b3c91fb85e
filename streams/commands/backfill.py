"""Run `fleetlore backfill run | switch | list | drop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fleetlore.cli.shared import (
    Data,
    Json,
    Milvus,
    Stack,
    ask,
    command,
    confirm,
    connection,
    group,
    print_json,
    print_table,
)
from fleetlore.config import Settings

if TYPE_CHECKING:
    from pymilvus import MilvusClient

__all__ = ["register"]

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="Name of the collection version: up to 32 of a-z, 0-9 and '_'.")]


def register(app: typer.Typer) -> None:
    commands = group(app, "backfill")
    commands.info.help = "Process the events again into new collections."
    for each in (run, switch, drop):
        commands.command()(each)
    commands.command("list")(list_all)


@command
def run(stack: Stack, name: Name, as_json: Json = False) -> None:
    """Fill a collection version up to the end of the log. Run it again to continue."""
    settings = stack.settings
    from streams.offline.backfill import run_backfill

    report = ask(run_backfill(settings, name)).to_dict()
    if as_json:
        print_json(report)
    else:
        typer.echo(
            f"{report['events']:,} events in {report['seconds']:,.1f} s: {report['events_per_second']:,.0f} events/s, "
            f"{report['times_real_time']:,.1f} × real time"
        )


@command
def switch(
    stack: Stack,
    name: Name,
    allow_loss: Annotated[bool, typer.Option("--allow-loss", help="Switch even if lore is lost.")] = False,
) -> None:
    """Make a collection version the live one.

    Readers, workers and agents follow. The command refuses if a collection has fewer than half of the live rows or the
    broker no longer has the oldest events.
    """
    settings = stack.settings
    from streams.offline.backfill import switch as make_the_switch

    ask(make_the_switch(settings, name, allow_loss=allow_loss))
    typer.echo(f"{name} is live.")


@command
def list_all(milvus: Milvus = None, data: Data = None, as_json: Json = False) -> None:
    """List the collection versions: their rows, and which is live."""
    settings = connection(None, data, milvus)
    from sinks.collections import COLLECTIONS, list_versions, row_counts

    def read(client: MilvusClient) -> list[tuple[str, bool, dict[str, int]]]:
        return [(name, live, row_counts(client, name)) for name, live in list_versions(client).items()]

    found = ask(_on_milvus(settings, read))
    if as_json:
        print_json([{"name": name, "live": live, "rows": rows} for name, live, rows in found])
        return
    columns = ["NAME", "LIVE", *(f">{each.name.upper()}" for each in COLLECTIONS)]
    rows = [(name, "yes" if live else "", *(f"{each:,}" for each in rows.values())) for name, live, rows in found]
    print_table(columns, rows)


@command
def drop(
    name: Name,
    milvus: Milvus = None,
    data: Data = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Drop a collection version that is not live.

    This deletes its rows. The command asks first.
    """
    settings = connection(None, data, milvus)
    from sinks.collections import check_droppable, drop_version

    if not yes:
        ask(_on_milvus(settings, lambda client: check_droppable(client, name)))
        confirm(f"Drop {name} with all its rows?")
    ask(_on_milvus(settings, lambda client: drop_version(client, name)))
    typer.echo(f"{name} is dropped.")


async def _on_milvus(settings: Settings, work: Callable[[MilvusClient], T]) -> T:
    from sinks.milvus import MilvusStore

    async with MilvusStore.from_settings(settings) as store:
        return await store.on_client(work)
