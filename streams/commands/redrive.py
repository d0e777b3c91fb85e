"""Run `fleetlore dead-letters redrive`."""

from collections import Counter
from typing import Annotated

import typer

from fleetlore.cli.dead_letters import Reason, place
from fleetlore.cli.shared import Asked, ask, command, group, print_json, safe
from fleetlore.wire.principals import Principals

__all__ = ["register"]

_SHOWN_REFUSED = 20


def _places(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [place(text) for text in texts]


def register(app: typer.Typer) -> None:
    group(app, "dead-letters").command("redrive")(redrive)


@command
def redrive(
    asked: Asked,
    reason: Reason = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Select this dead letter; repeat for several.", callback=_places),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most dead letters to send back.")] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Send them. Without it, only report what would be sent.")] = False,
) -> None:
    """Send dead letters back to where they came from.

    They go to their source topic and partition, oldest first. Without --yes this is a dry run.
    """
    from sinks.redrive import redrive as redrive_

    settings = asked.settings
    done = ask(
        redrive_(
            settings.cluster, asked.tenant, send=yes, reasons=reason or (), places=id_ or (), limit=limit,
            self_declared=Principals.of(settings.principal_key) is None,
        )
    )  # fmt: skip
    if asked.json:
        letters, reasons = [letter.place for letter in done.sent], Counter(letter.reason for letter in done.sent)
        refused = [{"id": letter.place, "why": why} for letter, why in done.refused]
        found = {"tenant": asked.tenant, "dry_run": not yes, "letters": letters, "reasons": dict(reasons)}
        print_json(found | {"refused": refused, "sent_before": done.before, "beyond_limit": done.beyond})
        return
    counts = Counter((letter.reason, letter.topic) for letter in done.sent)
    for (name, source), count in counts.most_common():
        typer.echo(f"{count} with {safe(name)} {'sent' if yes else 'to send'} back to {safe(source)}")
    for letter, why in done.refused[:_SHOWN_REFUSED]:
        typer.echo(f"{letter.place} refused: {safe(why)}")
    if len(done.refused) > _SHOWN_REFUSED:
        typer.echo(f"… and {len(done.refused) - _SHOWN_REFUSED} more refused")
    if done.before:
        typer.echo(f"{done.before} were sent back before")
    if done.beyond:
        typer.echo(f"{done.beyond} more than --limit {limit}; call it again for those")
    if not (done.sent or done.refused or done.before):
        typer.echo(f"No dead letter of tenant {asked.tenant} matches.")
    elif not yes and done.sent:
        typer.echo("Nothing was sent: this was a dry run. Send them with --yes")
