"""Run `fleetlore backfill run | switch | list | drop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fleetlore.cli import shared
from fleetlore.config import Settings

if TYPE_CHECKING:
    from pymilvus import MilvusClient

__all__ = ["register"]

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="Name of the collection version: up to 32 of a-z, 0-9 and '_'.")]


def register(app: typer.Typer) -> None:
    commands = shared.group(app, "backfill")
    commands.info.help = "Process the events again into new collections."
    for each in (run, switch, drop):
        commands.command()(each)
    commands.command("list")(list_all)


@shared.command
def run(stack: shared.Stack, name: Name, as_json: shared.Json = False) -> None:
    """Fill a collection version up to the end of the log. Run it again to continue."""
    settings = stack.settings
    from streams.offline.backfill import run_backfill

    report = shared.ask(run_backfill(settings, name)).to_dict()
    text = (
        f"{report['events']:,} events in {report['seconds']:,.1f} s: {report['events_per_second']:,.0f} events/s, "
        f"{report['times_real_time']:,.1f} × real time"
    )
    shared.print_result(as_json, report, text)


@shared.command
def switch(
    stack: shared.Stack,
    name: Name,
    allow_loss: Annotated[bool, typer.Option("--allow-loss", help="Switch even if lore is lost.")] = False,
) -> None:
    """Make a collection version the live one.

    Readers, workers and agents follow. The command refuses if a collection has fewer than half of the live rows or the
    broker no longer has the oldest events.
    """
    settings = stack.settings
    from streams.offline.backfill import switch as make_the_switch

    shared.ask(make_the_switch(settings, name, allow_loss=allow_loss))
    typer.echo(f"{name} is live.")


@shared.command
def list_all(milvus: shared.Milvus = None, data: shared.Data = None, as_json: shared.Json = False) -> None:
    """List the collection versions: their rows, and which is live."""
    settings = shared.connection(None, data, milvus)
    from sinks.collections import COLLECTIONS, list_versions, row_counts

    def read(client: MilvusClient) -> list[tuple[str, bool, dict[str, int]]]:
        return [(name, live, row_counts(client, name)) for name, live in list_versions(client).items()]

    found = shared.ask(_on_milvus(settings, read))
    if as_json:
        shared.print_json([{"name": name, "live": live, "rows": rows} for name, live, rows in found])
        return
    columns = ["NAME", "LIVE", *(f">{each.name.upper()}" for each in COLLECTIONS)]
    rows = [(name, "yes" if live else "", *(f"{each:,}" for each in rows.values())) for name, live, rows in found]
    shared.print_table(columns, rows)


@shared.command
def drop(
    name: Name,
    milvus: shared.Milvus = None,
    data: shared.Data = None,
    yes: shared.Yes = False,
) -> None:
    """Drop a collection version that is not live.

    This deletes its rows. The command asks first.
    """
    settings = shared.connection(None, data, milvus)
    from sinks.collections import check_droppable, drop_version

    if not yes:
        shared.ask(_on_milvus(settings, lambda client: check_droppable(client, name)))
        shared.confirm(f"Drop {name} with all its rows?")
    shared.ask(_on_milvus(settings, lambda client: drop_version(client, name)))
    typer.echo(f"{name} is dropped.")


async def _on_milvus(settings: Settings, work: Callable[[MilvusClient], T]) -> T:
    from sinks.milvus import MilvusStore

    async with MilvusStore.from_settings(settings) as store:
        return await store.on_client(work)
