"""Run `ingest otel`: traces of agents become sessions."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from fleetlore.cli.mcp import serve_http
from fleetlore.cli.options import Broker, Data, Tenant, connection
from fleetlore.errors import ModelUnavailable


def register(app: typer.Typer) -> None:
    ingest = typer.Typer(no_args_is_help=True, help="Receive what agents are observed by.")
    ingest.command()(otel)
    app.add_typer(ingest, name="ingest")


def otel(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1.")] = 4318,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
) -> None:
    """Receive OpenTelemetry traces.

    OTLP over HTTP, protobuf and JSON, until Ctrl-C.
    """
    connection(broker, data, unknown_refused=False)
    from fleetlore.agent.fleet import Fleet

    try:
        from fleetlore.join.otlp import receiving_app
    except ImportError as error:
        raise ModelUnavailable(f"`ingest otel` needs {error.name}: pip install 'fleetlore[otel]'") from None

    async def receive() -> None:
        async with Fleet("otel", broker=broker, data=data, tenant=tenant) as fleet:
            await serve_http(receiving_app(fleet), port)

    asyncio.run(receive())
