"""Serve the relay: one process, one sender and one copy of the lore, for many agents in any language."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fleetlore.agent.fleet import Fleet
from fleetlore.errors import FleetloreError, InvalidEvent
from fleetlore.relay.api import OPERATIONS, Api, Operation, answer, body_of, problem
from fleetlore.relay.callers import Tokens, caller_of
from fleetlore.relay.gateway import Gateway
from fleetlore.relay.hooks import Hooks
from fleetlore.relay.openapi import openapi

__all__ = ["relay_app"]

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_AGENT = "/agents/{agent}"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_NOT_YOURS = ("foreign_agent", "foreign_tenant")


def relay_app(
    fleets: Mapping[str, Fleet], tokens: Tokens | None = None, providers: Mapping[str, str] | None = None
) -> Starlette:
    """An ASGI application; enter the fleets, one a tenant, before it runs.

    Args:
        tokens: of the agents (`read_tokens`); None where only this machine reaches it, and callers name themselves.
        providers: addresses in place of those of `PROVIDERS`.
    """
    api, document = Api(fleets), msgspec.json.encode(openapi())

    def handler(operation: Operation) -> Endpoint:
        async def handle(request: Request) -> Response:
            return await answer(api, operation, caller_of(request, tokens), request)

        return handle

    async def describe(request: Request) -> Response:
        return Response(document, media_type="application/json")

    hooks = Hooks()

    async def hook(request: Request) -> Response:
        caller = caller_of(request, tokens)
        client, body = request.path_params["client"], await body_of(request)
        return JSONResponse(hooks.answer(api.fleet(caller), caller, client, body))

    async def follow(request: Request) -> Response:
        fleet = api.fleet(caller_of(request, tokens))
        try:
            found = await api.native.follow(fleet, await body_of(request))
        except asyncio.CancelledError:  # the server ends, and waits for nobody who waits
            raise HTTPException(503, "this relay ends") from None
        return Response(found, media_type="application/msgpack")

    async def record(request: Request) -> Response:
        caller, about = caller_of(request, tokens), request.path_params
        await api.native.record(api.fleet(caller), caller, about["topic"], about["key"], await body_of(request))
        return Response(status_code=204)

    gateway = Gateway(api.conversations, providers)

    def to(provider: str) -> Endpoint:
        async def forward(request: Request) -> Response:
            caller = caller_of(request, tokens, bearer=False)
            return await gateway.forward(api.fleet(caller), caller, request, provider)

        return forward

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        api.conversations.leave_all()
        hooks.sessions.leave_all()
        await api.native.close()
        await gateway.close()

    ends = [(each.path, handler(each), [each.method]) for each in OPERATIONS]
    ends += [(f"/{where}/{{path:path}}", to(where.split("/")[0]), _METHODS) for where in ("openai/v1", "anthropic")]
    # A client may know no more than an address.
    named = [Route(before + path, end, methods=methods) for before in ("", _AGENT) for path, end, methods in ends]
    # Of this package's own agents, and no part of the document.
    own = {"/v1/hooks/{client}": hook, "/v1/native/follow": follow, "/v1/native/records/{topic}/{key:path}": record}
    posts = [Route(path, end, methods=["POST"]) for path, end in own.items()]
    return Starlette(
        routes=[*named, Route("/v1/openapi.json", describe), *posts],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse, Exception: _refuse, **dict.fromkeys(_MALFORMED, _refuse)},
    )


_MALFORMED = (FleetloreError, msgspec.DecodeError)


async def _refuse(request: Request, error: Exception) -> Response:
    """Say what was wrong with a request."""
    match error:
        case HTTPException():
            more = {"accepted": accepted} if (accepted := getattr(error, "accepted", 0)) else {}
            return problem(error.status_code, error.detail, error.headers, **more)
        case InvalidEvent():
            return problem(403 if error.reason in _NOT_YOURS else 400, error.detail, reason=error.reason)
        case FleetloreError() | msgspec.DecodeError():
            return problem(400, str(error))
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "this is a bug of the relay; its log has the trace")
