"""Run `mcp` and `mcp-proxy`: agents join over the Model Context Protocol without code changes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.options import Joined, command, extra

if TYPE_CHECKING:  # comes with the extras [mcp] and [otel]
    from starlette.types import ASGIApp

_NEED = "the MCP commands need"
_Agent = Annotated[str, typer.Option("--agent", metavar="NAME", help="Name of the agent whose calls these are.")]
_Port = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Serve streamable HTTP at 127.0.0.1:PORT/mcp.")
]


def register(app: typer.Typer) -> None:
    app.command()(mcp)
    app.command("mcp-proxy")(mcp_proxy)


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
        str | None, typer.Option("--url", help="Address of an MCP server over streamable HTTP; takes --port too.")
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
    """Serve an ASGI application on this machine alone, and to no page in its browser.

    Args:
        what: is said to be served once the port is taken, with `{}` for its address.
    """
    from fleetlore.http_server.gate import listen
    from fleetlore.http_server.server import serve_http
    from fleetlore.loopback import without_pages

    sockets = listen("127.0.0.1", port)
    typer.echo(f"serves {what.format(f'127.0.0.1:{port}')}; Ctrl-C stops it", err=True)
    await serve_http(without_pages(app), sockets)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="fleetlore: %(message)s")
    logging.getLogger("mcp").setLevel(logging.ERROR)  # clients can trigger its warnings at will
