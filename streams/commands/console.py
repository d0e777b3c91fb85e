"""Run `fleetlore console`."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from fleetlore.cli.shared import Stack, command
from fleetlore.config import DEFAULT_TENANT, check_tenant

__all__ = ["DEFAULT_PORT", "register"]

DEFAULT_PORT = 7070


def register(app: typer.Typer) -> None:
    app.command()(console)


@command
def console(
    stack: Stack,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="Tenant to show; of several none can be changed.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics", metavar="URL", help="Metrics endpoint of a worker or trainer; repeat. Default: the stack's."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on; beyond loopback it asks who you are.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 picks a free one.")] = DEFAULT_PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show no actions.")] = False,
) -> None:
    """Serve a page that shows what the fleet has learned.

    It runs until Ctrl-C.
    """
    settings = stack.settings.with_key(stack.data)
    from fleetlore.cluster import roles_of
    from fleetlore.http_server import listen, serve_http
    from streams.console.actions import Actions
    from streams.console.pages import Console
    from streams.console.requests import People, Tenants
    from streams.console.sources import Sources
    from streams.embedded.broker import local_address

    token = secrets.token_urlsafe(24)
    people = People.of(settings, host, token)
    names = [check_tenant(name) for name in dict.fromkeys(tenant or [DEFAULT_TENANT])]
    actions = {} if read_only else {name: Actions(settings, name) for name in names}
    endpoints = metrics or ([] if stack.data is None else list(roles_of(stack.data).values()))

    async def serve() -> None:
        async with AsyncExitStack() as opened:
            sources = {name: await opened.enter_async_context(Sources(settings, name, endpoints)) for name in names}
            choices = names if len(names) > 1 else ()
            app = Tenants({name: Console(sources[name], people, actions.get(name), choices).app for name in names})
            listening = listen(host, port)
            number = listening[0].getsockname()[1]
            # A server on every address also listens on loopback, which a browser can open.
            shown = local_address(host)
            # Print only a generated token, a viewer's: others may read the log.
            printed = f"?token={token}" if people.by_token(token) else ""
            typer.echo(f"console http://{f'[{shown}]' if ':' in shown else shown}:{number}/{printed}")
            await serve_http(app, listening)
            for each in actions.values():
                await each.close()

    asyncio.run(serve())
