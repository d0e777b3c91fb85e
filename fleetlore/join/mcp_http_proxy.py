"""Forward streamable HTTP to an MCP server elsewhere, and record and advise the calls of its tools.

Headers pass through both ways, so the client's own authorisation does. An answer comes in the HTTP exchange of its
request; a session of the fleet lasts as long as the server's own (`Mcp-Session-Id`), or as the proxy where it has none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fleetlore.agent.fleet import Fleet
from fleetlore.agent.named_sessions import NamedSessions
from fleetlore.join.mcp_calls import McpCalls

__all__ = ["forwarding_app"]

_SESSION = "mcp-session-id"
# Of one connection and not of the message.
_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}


def forwarding_app(fleet: Fleet, url: str, *, goal: str = "", task: str = "") -> Starlette:
    """An ASGI application that forwards `/mcp` to `url`; enter the fleet before it runs."""
    sessions = NamedSessions()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with httpx2.AsyncClient(timeout=None) as app.state.client:
            yield
        sessions.leave_all()

    async def forward(request: Request) -> Response:
        id = request.headers.get(_SESSION, "")
        calls = McpCalls(sessions.enter(id, lambda: fleet.session(goal, task)))
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        headers["accept-encoding"] = "identity"
        content, held = calls.from_client(await request.body())
        if held:
            return Response(held, media_type="application/json")
        client: httpx2.AsyncClient = request.app.state.client
        try:
            answer = await client.send(
                client.build_request(request.method, url, headers=headers, content=content or None), stream=True
            )
        except httpx2.HTTPError as error:
            calls.close()
            return Response(f"{url} cannot be reached: {error}", 502)
        begun = answer.headers.get(_SESSION)
        if begun and not id and "" in sessions:  # another that began at the same time may have taken it
            sessions[begun] = sessions.pop("")
        if request.method == "DELETE":
            sessions.leave(id)
        told = {name: value for name, value in answer.headers.items() if name not in _HOP}
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingResponse(_events(answer, calls), answer.status_code, told)
        body = calls.from_server(await answer.aread())
        calls.close()
        await answer.aclose()
        return Response(body, answer.status_code, told)

    return Starlette(routes=[Route("/mcp", forward, methods=["GET", "POST", "DELETE"])], lifespan=lifespan)


async def _events(answer: httpx2.Response, calls: McpCalls) -> AsyncIterator[bytes]:
    try:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                line = "data: " + calls.from_server(line[5:].strip().encode()).decode()
            yield line.encode() + b"\n"
    finally:
        calls.close()
        await answer.aclose()
