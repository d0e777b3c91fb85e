"""Run `fleetlore erase`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetlore.cli.shared import Json, Stack, Workers, Yes, ask, command, confirm, moment, print_json, print_table, safe
from fleetlore.config import DEFAULT_TENANT, check_tenant
from fleetlore.words import count

__all__ = ["Agent", "Session", "User", "register"]


def _named(name: str | None) -> str | None:
    """Refuse an unset variable of a script: fewer names mean more sessions."""
    if name == "":
        raise typer.BadParameter("this is no name")
    return name


Session = Annotated[
    str | None,
    typer.Option("--session", callback=_named, help="Id of a session; of every agent without --agent."),
]
Agent = Annotated[
    str | None, typer.Option("--agent", callback=_named, help="Name of the agent: everything it did so far.")
]
User = Annotated[
    str | None, typer.Option("--user", callback=_named, help="User of the sessions, as `user=` named them.")
]


def register(app: typer.Typer) -> None:
    app.command()(erase)


@command
def erase(
    stack: Stack,
    session: Session = None,
    agent: Agent = None,
    user: User = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", callback=_named, help="Tenant; alone, everything that it has. Default: default."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be erased and change nothing.")] = False,
    yes: Yes = False,
    timeout: Workers = 300.0,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Write the report here, signed by FLEETLORE_SIGNING_KEY."),
    ] = None,
    json: Json = False,
) -> None:
    """Erase sessions from everything the fleet has learned.

    The fleet keeps running. The workers, which must be running, remove the sessions from patterns and items. Events on
    the log are ignored and expire; the report says when the last one does.
    """
    everything = tenant is not None and not (session or agent or user)
    name = check_tenant(tenant or DEFAULT_TENANT)
    settings = stack.settings.with_key(stack.data)
    from fleetlore.adapters.signatures import load_signing_key
    from streams.offline.erase import erase as run
    from streams.offline.erase_search import Wanted

    wanted = Wanted(tenant=name, session=session or "", agent=agent or "", user=user or "", everything=everything)
    if not dry_run and not yes:
        confirm(f"Erase {safe(wanted.scope)} from all that was learned? It cannot be brought back.")
    key = None if certificate is None else load_signing_key(settings.signing_key)
    report = ask(run(settings, wanted, dry_run=dry_run, timeout_seconds=timeout))
    if key is not None and certificate is not None:
        certificate.write_bytes(key.sign(report))
    if json:
        print_json(asdict(report))
        return
    verb = "Erased" if report.done else "Would erase"
    typer.echo(f"{verb} {safe(report.scope)} of tenant {report.tenant}: {count(report.sessions, 'session')}.")
    held = [*report.rows.values(), *report.records.values(), *report.decisions.values(), *report.versions]
    if not any(held):
        typer.echo("No log, store or version holds it: is its name right?")
    stores = [(f"Milvus {collection}", f"{number} rows", "") for collection, number in report.rows.items()]
    stores += [(f"topic {name}", f"{number} decisions", "") for name, number in report.decisions.items()]
    stores += [
        (f"adapter {version[:18]}", "revoked and deleted" if report.done else "has learned of it", "")
        for version in report.versions
    ]
    stores += [(f"topic {name}", f"{n} records", moment(report.until[name])) for name, n in report.records.items()]
    print_table(["WHERE", "WHAT", "GONE BY (UTC)"], stores)
    for where, how_long in report.remains.items():
        typer.echo(f"{where}: {how_long}.")
