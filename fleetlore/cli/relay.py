"""Run `relay`, `mcp`, `mcp-proxy` and `topics schema`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.shared import Broker, Data, Joined, command, connection, print_json
from fleetlore.config import check_tenant
from fleetlore.errors import ConfigError, extra
from fleetlore.loopback import is_loopback, without_pages
from fleetlore.wire.principals import ANYONE, principal_of, signs_as

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from fleetlore.http_server import Listener
    from fleetlore.relay.callers import Tokens

__all__ = ["address"]


def _file(name: str, help: str) -> Any:
    return typer.Option(name, metavar="FILE", dir_okay=False, exists=True, help=help)


def _url(name: str, help: str) -> Any:
    def checked(value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{value!r} is no http:// or https:// address")
        return value

    return typer.Option(name, metavar="URL", help=help, callback=checked)


@command
def relay(
    http: Annotated[
        str, typer.Option("--http", metavar="ADDRESS", help="HOST:PORT or unix:PATH to serve on.")
    ] = "127.0.0.1:7411",
    tokens: Annotated[
        Path | None,
        _file("--tokens", "A line each: token, agent, tenant, `operator` if it may write hints. Needed off loopback."),
    ] = None,
    certificate: Annotated[Path | None, _file("--tls-certificate", "PEM, with its chain. Needed off loopback.")] = None,
    key: Annotated[Path | None, _file("--tls-key", "PEM, of the certificate.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Serve beyond loopback without TLS, behind a proxy that has it.")
    ] = False,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Tenant to serve; repeat.")] = None,
    openai: Annotated[str | None, _url("--openai", "Where requests to /openai/v1 go. Default: OpenAI.")] = None,
    anthropic: Annotated[
        str | None, _url("--anthropic", "Where requests to /anthropic go. Default: Anthropic.")
    ] = None,
    broker: Broker = None,
    data: Data = None,
) -> None:
    """Serve agents in any language over HTTP.

    It also forwards their requests to models. One process holds one connection and one copy of the lore for all.
    """
    logging.basicConfig(level=logging.WARNING, format="fleetlore: %(message)s")
    path = http.removeprefix("unix:") if http.startswith("unix:") else ""
    host, port = ("localhost", 0) if path else address(http)
    if (certificate is None) != (key is None):
        raise typer.BadParameter("give --tls-certificate and --tls-key, or neither")
    if path and certificate is not None:
        raise typer.BadParameter("a Unix socket takes no TLS: its folder's rights say who reaches it")
    if not is_loopback(host) and (tokens is None or (certificate is None and not plain)):
        raise typer.BadParameter(
            f"{host} is reached by others: give --tokens, and --tls-certificate and --tls-key or --plain"
        )
    tenants = [check_tenant(each) for each in tenant or ["default"]]
    settings = connection(broker, data, of_agent=True)
    signed = signs_as(settings.principal_key)
    if tokens is None and signed == ANYONE:
        raise ConfigError("a relay that signs what its callers say has to tell them apart: give --tokens")
    with extra("relay", "`relay` needs"):
        from fleetlore.http_server import listen, serve_http
        from fleetlore.relay.app import relay_app
        from fleetlore.relay.callers import read_tokens
    from fleetlore.agent.fleet import Fleet

    providers = {name: url for name, url in (("openai", openai), ("anthropic", anthropic)) if url is not None}
    known: Tokens | None = None if tokens is None else read_tokens(tokens)
    for each in known.values() if known and signed not in (None, ANYONE) else ():
        if principal_of(each.agent) != signed:
            raise ConfigError(
                f"{tokens} has a token of agent {each.agent!r}, and this relay signs for {signed!r} alone"
            )

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            fleets = {
                each: await stack.enter_async_context(Fleet("relay", broker=broker, data=data, relay="", tenant=each))
                for each in tenants
            }
            app: Any = relay_app(fleets, known, providers)
            if not path and is_loopback(host):
                app = without_pages(app)
            sockets = [stack.enter_context(_unix_socket(Path(path)))] if path else listen(host, port)
            typer.echo(f"relay {http}" if path else f"relay {'https' if certificate else 'http'}://{http}")
            await serve_http(app, sockets, certificate=certificate, key=key)

    asyncio.run(serve())


def address(text: str) -> tuple[str, int]:
    """Raises BadParameter: it is no HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(f"{text!r} is no HOST:PORT", param_hint="--http")
    return host.strip("[]"), int(port)


@contextmanager
def _unix_socket(path: Path) -> Iterator[Listener]:
    """Listen on a socket for this user and its group, in place of a killed relay's."""
    from fleetlore.http_server import Listener

    with Listener(socket.AF_UNIX) as made:
        try:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
                    other.connect(str(path))
                    raise ConfigError(f"unix:{path} cannot be listened on; another process serves there")
                path.unlink()
            mask = os.umask(0o117)
            try:
                made.bind(str(path))
            finally:
                os.umask(mask)
        except OSError as error:
            raise ConfigError(f"unix:{path} cannot be listened on: {error}") from None
        try:
            yield made
        finally:
            path.unlink(missing_ok=True)


def schema(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Print the JSON Schema of this topic's values instead.")
    ] = None,
) -> None:
    """Print what the topics hold, as AsyncAPI 3 or JSON Schema."""
    from fleetlore.relay.schemas import SCHEMAS, asyncapi, json_schema

    if topic is not None and topic not in SCHEMAS:
        raise typer.BadParameter(f"agents write and read {', '.join(SCHEMAS)}", param_hint="TOPIC")
    print_json(asyncapi() if topic is None else json_schema(topic))


_NEED = "the MCP commands need"
_Agent = Annotated[str, typer.Option("--agent", metavar="NAME", help="Name of the agent whose calls these are.")]
_Port = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Serve streamable HTTP at 127.0.0.1:PORT/mcp.")
]


@command
def mcp(joined: Joined, port: _Port = None, agent: _Agent = "mcp") -> None:
    """Serve the lore over MCP.

    It serves advise, report, end and search on stdin and stdout, or with --port over HTTP.
    """
    _log_to_stderr()
    of_fleet = joined.fleet()
    from fleetlore.agent.fleet import Fleet

    with extra("mcp", _NEED):
        from fleetlore.join.mcp.server import lore_server

    async def serve() -> None:
        async with Fleet(agent, **of_fleet) as fleet:
            with lore_server(fleet) as server:
                if port is None:
                    await server.run_stdio_async()
                else:
                    await serve_here(server.streamable_http_app(), port, "the lore at http://{}/mcp")

    asyncio.run(serve())


@command
def mcp_proxy(
    joined: Joined,
    started: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Command of an MCP server on stdin and stdout.")
    ] = None,
    url: Annotated[
        str | None, _url("--url", "Address of an MCP server over streamable HTTP; takes --port too.")
    ] = None,
    port: _Port = None,
    agent: _Agent = "mcp",
    goal: Annotated[str, typer.Option("--goal", help="The agent's goal in words.")] = "",
    task: Annotated[
        str, typer.Option("--task", help="Name of the kind of task; sessions of one task are compared.")
    ] = "",
) -> None:
    """Run between an agent and any MCP server.

    It records the calls of the server's tools and adds advice after a failure.
    """
    if bool(started) == bool(url):
        raise typer.BadParameter("give `-- COMMAND...` or --url URL")
    if (port is None) != (url is None):
        raise typer.BadParameter("--url and --port belong together: the proxy serves HTTP where the server does")
    _log_to_stderr()
    of_fleet = joined.fleet()
    if started:
        from fleetlore.agent.blocking import BlockingFleet
        from fleetlore.join.mcp.proxy import run_command

        with BlockingFleet(agent, **of_fleet) as fleet, fleet.session(goal, task) as session:
            code = run_command(started, session)
        raise typer.Exit(code)
    from fleetlore.agent.fleet import Fleet

    with extra("mcp", _NEED):
        from fleetlore.join.mcp.http_proxy import forwarding_app

    async def forward() -> None:
        assert url is not None and port is not None
        async with Fleet(agent, **of_fleet) as fleet:
            await serve_here(forwarding_app(fleet, url, goal=goal, task=task), port, f"{url} at http://{{}}/mcp")

    asyncio.run(forward())


async def serve_here(app: ASGIApp, port: int, what: str) -> None:
    from fleetlore.http_server import listen, serve_http
    from fleetlore.loopback import without_pages

    sockets = listen("127.0.0.1", port)
    typer.echo(f"serves {what.format(f'127.0.0.1:{port}')}; Ctrl-C stops it", err=True)
    await serve_http(without_pages(app), sockets)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="fleetlore: %(message)s")
    logging.getLogger("mcp").setLevel(logging.ERROR)  # clients can trigger its warnings at will
