"""Run `topics schema`: print the contract of the topics for programs in other languages."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetlore.cli.output import print_json


def register(app: typer.Typer) -> None:
    from fleetlore.cli.app import group

    topics = group(app, "topics")
    topics.info.help = "Describe the topics of a broker."  # the server's commands say more
    topics.command("schema")(schema)


def schema(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Print the JSON Schema of this topic's values instead.")
    ] = None,
) -> None:
    """Print what the topics hold, as AsyncAPI 3 or JSON Schema."""
    from fleetlore.relay.asyncapi import SCHEMAS, asyncapi, json_schema

    if topic is not None and topic not in SCHEMAS:
        raise typer.BadParameter(f"agents write and read {', '.join(SCHEMAS)}", param_hint="TOPIC")
    print_json(asyncapi() if topic is None else json_schema(topic))
