"""Run `fleetlore dead-letters redrive`: send dead letters back to their source topics, once the cause is fixed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.dead_letters import Reason, Topic, place, source_topic
from fleetlore.cli.options import Asked, command, group
from fleetlore.cli.output import ask, print_json, safe
from fleetlore.wire.principals import Principals

if TYPE_CHECKING:
    from sinks.redrive import Redriven

_SHOWN_REFUSED = 20


def _places(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [place(text) for text in texts]


def register(app: typer.Typer) -> None:
    """Add the command to the group `dead-letters` (entry point `dead-letters.redrive`)."""
    group(app, "dead-letters").command("redrive")(redrive)


@command
def redrive(
    asked: Asked,
    reason: Reason = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Select this dead letter; repeat for several.", callback=_places),
    ] = None,
    topic: Topic = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most dead letters to send back.")] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Send them. Without it, only report what would be sent.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also select those sent back before.")] = False,
    max_returns: Annotated[
        int, typer.Option("--max-returns", min=0, help="Refuse a dead letter that has come back this often.")
    ] = 3,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, max=3600, metavar="SECONDS", help="Seconds to wait for the next dead letter."
        ),
    ] = 60.0,
) -> None:
    """Send dead letters back to where they came from.

    To their source topic and partition, oldest first. A dry run unless --yes is given.
    """
    from sinks.redrive import Choice
    from sinks.redrive import redrive as redrive_

    choice = Choice(
        reasons=frozenset(reason or ()),
        topic=source_topic(asked.tenant, topic),
        places=frozenset(id_ or ()),
        limit=limit,
        again=again,
        max_returns=max_returns,
    )
    anybody = Principals.of(asked.settings.principal_key) is None
    sent = redrive_(
        asked.settings.cluster, asked.tenant, choice, send=yes, timeout_seconds=timeout, self_declared=anybody
    )
    done = ask(sent)
    if asked.json:
        print_json({"tenant": asked.tenant, "dry_run": not yes, **_figures(done)})
        return
    counts = Counter((letter.reason, letter.topic) for letter in done.sent)
    for (name, source), count in counts.most_common():
        typer.echo(f"{count} with {safe(name)} {'sent' if yes else 'to send'} back to {safe(source)}")
    for letter, why in done.refused[:_SHOWN_REFUSED]:
        typer.echo(f"{letter.place} refused: {safe(why)}")
    if len(done.refused) > _SHOWN_REFUSED:
        typer.echo(f"… and {len(done.refused) - _SHOWN_REFUSED} more refused")
    if done.before:
        typer.echo(f"{done.before} were sent back before; once more with --again")
    if done.beyond:
        typer.echo(f"{done.beyond} more than --limit {limit}; call it again for those")
    if not (done.sent or done.refused or done.before):
        typer.echo(f"No dead letter of tenant {asked.tenant} matches.")
    elif not yes and done.sent:
        typer.echo("Nothing was sent: this was a dry run. Send them with --yes")


def _figures(done: Redriven) -> dict[str, Any]:
    return {
        "letters": [letter.place for letter in done.sent],
        "reasons": dict(Counter(letter.reason for letter in done.sent)),
        "refused": [{"id": letter.place, "why": why} for letter, why in done.refused],
        "sent_before": done.before,
        "beyond_limit": done.beyond,
    }
