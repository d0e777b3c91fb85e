"""Run `fleetlore export` and `import lore`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import orjson
import typer

from fleetlore.cli import shared
from fleetlore.cli.lore import read_lore
from fleetlore.errors import ConfigError
from streams.commands.lore.erase import Agent, Session, User

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(export)
    app.command("export sessions")(export_sessions)
    app.command("export lore")(export_lore)
    app.command("import lore")(import_lore)


@shared.command
def export(
    asked: shared.Asked,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=shared.folder, help="Folder for the two files.")],
) -> None:
    """Write judged sessions and preference pairs as JSONL for TRL.

    `sessions.jsonl` holds each session's messages and its label. `pairs.jsonl` holds the pairs from which the trainer
    learns a policy adapter: `prompt`, `chosen` (it worked) and `rejected` (it failed).
    """
    settings = asked.settings
    from models.policy.pairs import preference_pairs, session_row, usable
    from streams.training.window import judged_sessions

    kept = [each for each in shared.ask(judged_sessions(settings, asked.tenant)) if usable(each)]
    pairs = preference_pairs(kept, settings.quorum)
    files = {"sessions": [session_row(each) for each in kept], "pairs": [pair.row() for pair in pairs]}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in files.items():
            (out / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from None
    shared.print_json({name: len(rows) for name, rows in files.items()})


@shared.command
def export_sessions(
    asked: shared.Asked,
    session: Session = None,
    agent: Agent = None,
    user: User = None,
) -> None:
    """Write a person's sessions as JSON lines.

    Each line on standard output is a session with its calls and its verdict. Use it when a person asks for their data;
    `fleetlore erase` takes the same options. Open sessions and sessions that the topics no longer hold are left out.
    """
    from streams.offline.erase_search import Wanted
    from streams.training.window import judged_sessions

    wanted = Wanted(tenant=asked.tenant, session=session or "", agent=agent or "", user=user or "")
    written = 0
    for judgment in shared.ask(judged_sessions(asked.settings, asked.tenant)):
        of = judgment.trajectory
        if wanted.means(of.session, of.agent, of.user):
            sys.stdout.buffer.write(judgment.to_json() + b"\n")
            written += 1
    if not written:
        typer.echo(f"No judged session of {wanted.scope} is on the log: is its name right?", err=True)


@shared.command
def export_lore(
    stack: shared.Stack,
    tenant: shared.Tenant = "default",
    form: Annotated[
        tuple[str, Path] | None,
        typer.Option("--as", metavar="skills DIR", help="Write hints as SKILL.md folders in DIR instead."),
    ] = None,
) -> None:
    """Write the lore to standard output as JSON lines.

    These are all patterns, memory items and decisions. The file is signed if the fleet has a key. It holds agents'
    names and the texts of their calls. Sessions, judgments and adapters are not in it.
    """
    settings = stack.settings.with_key(stack.data)
    if form is not None:
        if form[0] != "skills":
            raise typer.BadParameter(f"{form[0]!r} is no form; the form is skills", param_hint="--as")
        from streams.offline.lore_file import skills_of, write_skills

        index = read_lore(shared.Reader(broker=stack.broker, data=stack.data, tenant=tenant))
        names = write_skills(form[1], tenant, skills_of(index, settings, time.time()))
        typer.echo(f"{len(names)} skills in {form[1]}: {', '.join(names) or 'no hint passes the gate yet'}")
        return
    from fleetlore.adapters.signatures import load_signing_key
    from streams.offline import lore_file

    async def write() -> int:
        lines = 0
        async for line in lore_file.export_lore(settings, tenant, key):
            sys.stdout.buffer.write(line)
            lines += 1
        return lines

    key = load_signing_key(settings.signing_key) if settings.signing_key else None
    if shared.ask(write()) == 2:  # its first and its last line
        typer.echo(f"Nothing is known of tenant {tenant}: the file holds no lore.", err=True)


@shared.command
def import_lore(
    stack: shared.Stack,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="File of `export lore`.")],
    tenant: shared.Tenant = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file; change nothing.")] = False,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Believe the file without a trusted signature.")] = False,
    yes: shared.Yes = False,
    timeout: shared.Workers = 300.0,
    json: shared.Json = False,
) -> None:
    """Merge a file of `export lore` into a tenant's lore.

    The whole file is checked first, and a fault in it changes nothing. Patterns and items merge by id with what the
    tenant knows. The workers, which must be running, do that. Importing a file again changes nothing.
    """
    settings = stack.settings
    from streams.offline import lore_file
    from streams.offline.lore_file import LoreFile

    read = LoreFile(file, tenant, None if unsigned else settings.public_key)
    known = shared.ask(lore_file.known_of(settings, tenant, read))
    report = {name: {"in_file": count, "known": known[name]} for name, count in read.counts.items()}
    signed = f"signed by {read.signer}" if read.signer else "not signed"
    if not json:
        made = f"tenant {shared.safe(read.header.tenant)}, {shared.moment(read.header.time)} (UTC)"
        typer.echo(f"{file}: lore of {made}, {signed}")
        for name, row in report.items():
            typer.echo(f"{row['in_file']:,} {name}, {row['known']:,} of them known here")
    if not dry_run:
        if not yes:
            shared.confirm(f"Merge this into the lore of tenant {tenant}?")
        shared.ask(lore_file.import_lore(settings, tenant, read, timeout))
    if json:
        shared.print_json({"tenant": tenant, "signer": read.signer, "imported": not dry_run, **report})
    elif not dry_run:
        typer.echo(f"Merged into the lore of tenant {tenant}.")
