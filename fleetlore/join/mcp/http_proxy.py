"""Forward streamable HTTP to an MCP server, and record and advise the calls of its tools.

A session is one of the server's (`Mcp-Session-Id`, gone from the protocol since 2026-07-28), or lasts until its peer is
silent.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from hashlib import sha256
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fleetlore.agent.doors import NamedSessions
from fleetlore.agent.fleet import Fleet
from fleetlore.errors import ConfigError
from fleetlore.join.mcp.proxy import MAX_MESSAGE, McpCalls
from fleetlore.limits import bounded
from fleetlore.wire.decode import read_json

__all__ = ["forwarding_app", "send_on", "upstream_client"]

# Our header names a client's session, and is not forwarded.
_SESSION, _OURS = "mcp-session-id", "fleetlore-session"
_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade", _OURS}
# RFC 9728.
_RESOURCE = "/.well-known/oauth-protected-resource"
_METADATA = re.compile(r'resource_metadata="?[^\s",]+"?')
_CLIENT = "io.modelcontextprotocol/clientInfo"
_LOOK_SECONDS = 10.0


def forwarding_app(fleet: Fleet, url: str, *, goal: str = "", task: str = "") -> Starlette:
    """Forward `/mcp` to `url`. Enter the fleet before it runs. Raises ConfigError: see `upstream_client`."""
    sessions, place, made = NamedSessions(), urlsplit(url), upstream_client(timeout=None)
    # The operator chose the address. A server's own name may be another's.
    server = f"{place.hostname}{place.path.removesuffix('/mcp')}"

    async def close_silent() -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            sessions.leave_silent(fleet.clock.monotonic())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        closing = asyncio.create_task(close_silent())
        async with made as app.state.client:
            yield
        closing.cancel()
        sessions.leave_all()

    async def forward(request: Request) -> Response:
        asked = await request.body()
        name = request.headers.get(_SESSION) or request.headers.get(_OURS)
        id = _named(request, name) if name else _peer(request, asked, sessions)
        session = sessions.enter(id, lambda: fleet.session(goal, task), (id.partition(" ")[0], ""))
        calls = McpCalls(session, server)
        content, held = calls.from_client(asked)
        if held:
            return Response(held, media_type="application/json")
        sessions.busy[session] += calls.under_way

        def over(under_way: int = calls.under_way) -> None:
            sessions.busy[session] -= under_way
            sessions.busy += Counter()  # drop zeros
            if id in sessions:
                sessions.heard(id)
            calls.close()

        answer = await _ask(request, url, content)
        if isinstance(answer, Response):
            over()
            return answer
        if given := answer.headers.get(_SESSION):
            begun = _named(request, given)
            if begun not in sessions and id in sessions:
                sessions.rename(id, begun)
                id = begun
        if request.method == "DELETE" and answer.is_success:
            sessions.leave(id)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return _told(request, answer, StreamingResponse(_events(answer, calls, over), answer.status_code))
        try:
            body = await bounded(answer.aiter_bytes(), MAX_MESSAGE)
            if body is None:
                return Response(f"{url} answers with more than {MAX_MESSAGE} bytes", 502)
            body = calls.from_server(body)
        except httpx2.HTTPError as error:
            return Response(f"{url} cut off its answer: {error}", 502)
        finally:
            over()
            await answer.aclose()
        return _told(request, answer, Response(body, answer.status_code))

    async def resource(request: Request) -> Response:
        at = urlsplit(url)
        answer = await _ask(request, f"{at.scheme}://{at.netloc}{_RESOURCE}{at.path}", b"")
        if isinstance(answer, Response):
            return answer
        body = await answer.aread()
        await answer.aclose()
        if answer.is_success:
            body = msgspec.json.encode({**read_json(body), "resource": str(request.url.replace(path="/mcp", query=""))})
        return _told(request, answer, Response(body, answer.status_code))

    methods = ["GET", "POST", "DELETE"]
    routes = [Route("/mcp", forward, methods=methods), Route(_RESOURCE, resource), Route(f"{_RESOURCE}/mcp", resource)]
    return Starlette(routes=routes, lifespan=lifespan)


async def send_on(
    client: httpx2.AsyncClient, request: Request, url: str, content: bytes, dropped: Collection[str]
) -> httpx2.Response:
    """Send a request elsewhere, without these headers. Its answer can be read: every client accepts an unpacked one."""
    dropped = {*dropped, "content-length", "accept-encoding"}
    headers = [(name, value) for name, value in request.headers.raw if name.decode("latin-1") not in dropped]
    headers.append((b"accept-encoding", b"identity"))
    sent = client.build_request(request.method, url, headers=headers, content=content or None)
    return await client.send(sent, stream=True)


async def _ask(request: Request, url: str, content: bytes) -> httpx2.Response | Response:
    try:
        # The body goes on as it came, packed or not.
        return await send_on(request.app.state.client, request, url, content, _HOP - {"content-encoding"})
    except httpx2.HTTPError as error:
        return Response(f"{url} cannot be reached: {error}", 502)


def _told(request: Request, answer: httpx2.Response, told: Response) -> Response:
    for key, content in answer.headers.raw:
        name, value = key.decode("latin-1").lower(), content.decode("latin-1")
        if name == "www-authenticate":
            here = request.url.replace(path=f"{_RESOURCE}/mcp", query="")
            value = _METADATA.sub(f'resource_metadata="{here}"', value)
        if name not in _HOP:
            told.headers.append(name, value)
    return told


def _named(request: Request, name: str) -> str:
    """Another user's credentials give another key."""
    return f"{sha256(request.headers.get('authorization', '').encode()).hexdigest()} {name}"


def _peer(request: Request, asked: bytes, open: Collection[str]) -> str:
    """Agents on one SDK share a name, so the connection tells them apart."""
    try:
        message = read_json(asked)
        method, client = message["method"], msgspec.json.encode(message["params"]["_meta"][_CLIENT])
    except (msgspec.DecodeError, LookupError, TypeError):
        method, client = "", b""
    who = sha256(b"\0".join((request.headers.get("authorization", "").encode(), client))).hexdigest()
    peer = f"{who} {request.client}"
    if peer in open or method != "tools/call":
        return peer
    like = [name for name in open if name.startswith(who)]
    return like[0] if len(like) == 1 else peer


async def _events(answer: httpx2.Response, calls: McpCalls, over: Callable[[], None]) -> AsyncIterator[bytes]:
    def told(line: bytes) -> bytes:
        line = line.rstrip(b"\r")
        return b"data: " + calls.from_server(line[5:].strip()) if line.startswith(b"data:") else line

    # Parts are joined once: a line of many parts would be copied with each of them.
    rest, size, is_whole = list[bytes](), 0, True
    try:
        async for part in answer.aiter_bytes():
            # `aiter_lines` would split at a U+2028 in a JSON text.
            for number, piece in enumerate(part.split(b"\n")):
                if number:
                    line = b"".join(rest)
                    yield (told(line) if is_whole else line) + b"\n"
                    rest, size, is_whole = [], 0, True
                rest.append(piece)
                size += len(piece)
            if size > MAX_MESSAGE:
                yield b"".join(rest)
                rest, size, is_whole = [], 0, False
        if line := b"".join(rest):
            yield told(line) if is_whole else line
    finally:
        over()
        await answer.aclose()


def upstream_client(**options: Any) -> httpx2.AsyncClient:
    """Without a cookie jar: cookies of one caller must not reach another's request. No proxy serves this machine.

    Raises ConfigError: the environment names a proxy or certificates that cannot be used.
    """
    past = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
    try:
        return httpx2.AsyncClient(cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())), mounts=past, **options)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        where = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
        raise ConfigError(f"no request can be sent with this environment: {error}; look at {where}") from None
