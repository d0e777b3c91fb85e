"""MCP: messages between a client and a server, over stdio and over HTTP, and the tools of fleetlore's own server."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import httpx2
import orjson
from mcp.server.mcpserver.exceptions import ToolError

from fleetlore.join.mcp.http_proxy import forwarding_app
from fleetlore.join.mcp.proxy import McpCalls
from fleetlore.join.mcp.server import lore_server
from tests.fuzz.asgi import Asked, ask
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, json_of
from tests.fuzz.worker import Worker, fleet_of

_ANSWER = {"jsonrpc": "2.0", "id": 1}
_CALL = {**_ANSWER, "method": "tools/call", "params": {"name": "search", "arguments": {"index": "products"}}}
_CLIENT: list[Any] = [
    _CALL,
    [_CALL, {**_CALL, "id": 2}],
    {**_ANSWER, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
    {**_ANSWER, "method": "tools/list"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "late"}},
]
_SERVER: list[Any] = [
    {**_ANSWER, "result": {"content": [{"type": "text", "text": "three chairs"}], "structuredContent": {"n": 3}}},
    {**_ANSWER, "result": {"content": [{"type": "text", "text": "index products does not exist"}], "isError": True}},
    [{**_ANSWER, "result": {"content": []}}, {**_ANSWER, "id": 2, "result": {"content": None}}],
    {**_ANSWER, "error": {"code": -32602, "message": "no such tool"}},
    {**_ANSWER, "result": {"instructions": "Be kind.", "capabilities": {}, "cacheScope": "public"}},
    {**_ANSWER, "result": {"tools": [{"name": "search", "description": "find", "inputSchema": {}}]}},
]
_TOOLS: dict[str, dict[str, Any]] = {
    "advise": {"session": "s", "goal": "g", "tool": "search", "arguments": {"index": "products"}},
    "report": {"session": "s", "tool": "search", "arguments": {"index": "products"}, "error": "no"},
    "end": {"session": "s", "outcome": "success", "reward": 1.0},
    "search": {"text": "index products", "most": 5},
}


class Exchange(NamedTuple):
    """One message of a client and one of a server.

    Attributes:
        kind: `stdio`, `http`, or the name of a tool of fleetlore's own server.
        client: the message; for a tool its arguments in JSON.
    """

    kind: str
    client: bytes
    server: bytes


def make(random: Random) -> Exchange:
    if chance(random, 20):
        name, valid = random.choice(list(_TOOLS.items()))
        return Exchange(name, json_of(random, valid), b"")
    client, server = (
        any_bytes(random, lambda random, valid=valid: json_of(random, random.choice(valid)))
        for valid in (_CLIENT, _SERVER)
    )
    kind = "http" if chance(random, 6) else "stdio"
    return Exchange(kind, client, b"data: " + server + b"\n\n" if kind == "http" and chance(random, 3) else server)


def size(exchange: Exchange) -> int:
    return len(exchange.client) + len(exchange.server)


async def check(exchanges: Sequence[Exchange]) -> Counter[str]:
    """Every message goes on, changed or not, or is answered here; a worker takes what was recorded of the calls."""
    found, worker = Counter[str](), Worker()
    fleet = fleet_of(worker)
    answers: list[bytes] = []

    async def serve(request: httpx2.Request) -> httpx2.Response:
        answer = answers.pop()
        form = "text/event-stream" if answer.startswith(b"data:") else "application/json"
        return httpx2.Response(200, content=answer, headers={"content-type": form})

    app = forwarding_app(fleet, "http://server/mcp")
    session = fleet.session("find a chair", "shop")
    with session, lore_server(fleet) as server:
        calls = McpCalls(session)
        async with app.router.lifespan_context(app):
            app.state.client = httpx2.AsyncClient(transport=httpx2.MockTransport(serve))
            for each in exchanges:
                if each.kind == "stdio":
                    onward, answer = calls.from_client(each.client)
                    assert bool(onward) != bool(answer) or not each.client
                    told = calls.from_server(each.server)
                    assert bool(told) == bool(each.server), "a message of the server is lost"
                    found["taken" if onward == each.client and told == each.server else "answered or advised"] += 1
                elif each.kind == "http":
                    answers[:] = [each.server]
                    asked = Asked("POST", b"/mcp", ((b"content-type", b"application/json"),), each.client)
                    given = await ask(app, asked)
                    assert given.status == 200, f"{given.status} for {each}"
                    found["taken"] += 1
                else:
                    found[await _use(server, each)] += 1
        calls.close()
    worker.read()
    return found


async def _use(server: Any, exchange: Exchange) -> str:
    """Call a tool of fleetlore's own server; what it raises for bad arguments is MCP's own error."""
    try:
        arguments = orjson.loads(exchange.client)
    except orjson.JSONDecodeError:
        return "not_json"
    if not isinstance(arguments, dict):
        return "not_json"
    try:
        await server.call_tool(exchange.kind, arguments)
    except ToolError as error:
        assert str(error)
        return "tool error"
    return "taken"


MCP = Boundary("mcp", make, check, size, full=100_000, batch=1_000)
