"""No data of one caller travels with another's request, and no path leaves its forwarding address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from fleetlore import Fleet
from fleetlore.join.mcp.http_proxy import forwarding_app
from fleetlore.relay.app import relay_app
from tests.doubles.recorder import Recorder
from tests.served import serving

FIRST, SECOND = {"authorization": "Bearer first"}, {"authorization": "Bearer second"}


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet("relay", broker="nowhere:1")
    fleet.emitter = Recorder()
    return fleet


@asynccontextmanager
async def provider(seen: list[Request]) -> AsyncIterator[str]:
    """A server that logs each caller in by cookies of several forms."""

    async def answer(request: Request) -> JSONResponse:
        seen.append(request)
        response = JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})
        response.raw_headers.append((b"x-name", "日".encode()))
        for domain, path in ((None, "/"), (None, "/openai"), ("127.0.0.1", "/")):
            response.set_cookie(f"login{len(path)}", request.headers.get("authorization", ""), domain=domain, path=path)
        return response

    methods = ["GET", "POST", "DELETE"]
    async with serving(Starlette(routes=[Route("/{path:path}", answer, methods=methods)])) as address:
        yield address


async def test_the_gateway_sends_no_cookie_of_one_caller_with_another_s_request(fleet: Fleet) -> None:
    seen: list[Request] = []
    async with provider(seen) as address, serving(relay_app({"default": fleet}, None, {"openai": address})) as relay:
        for headers in (FIRST, SECOND, {**SECOND, "cookie": "mine=1"}):
            async with httpx2.AsyncClient(timeout=120, headers=headers) as client:
                answer = await client.get(f"{relay}/openai/v1/models")
                assert answer.headers.get("set-cookie"), "the caller itself gets its cookie"
    assert [each.headers.get("cookie") for each in seen] == [None, None, "mine=1"]


async def test_the_mcp_proxy_sends_no_cookie_of_one_caller_with_another_s_request(fleet: Fleet) -> None:
    seen: list[Request] = []
    fleet._lifetime.enter()
    async with provider(seen) as address, serving(forwarding_app(fleet, f"{address}/mcp")) as proxy:
        for headers in (FIRST, SECOND):
            async with httpx2.AsyncClient(timeout=120, headers=headers) as client:
                twice = [*client.headers.multi_items(), ("x-tag", "a"), ("x-tag", "b")]
                message = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
                answer = await client.post(f"{proxy}/mcp", json=message, headers=twice)
                cookies = [each.partition("=")[0] for each in answer.headers.get_list("set-cookie")]
                assert (b"x-name", "日".encode()) in answer.headers.raw
                assert cookies == ["login1", "login7", "login1"], "the caller itself gets its cookies"
    assert all(each.headers.getlist("x-tag") == ["a", "b"] for each in seen)
    assert [each.headers.get("cookie") for each in seen] == [None, None]


DOTS = [
    quote(quote(dots, safe=""), safe="") if twice else dots
    for twice in (False, True)
    for dots in (
        *("..", ".", "%2e%2e", ".%2E", "%2E", "..;a=b", ".. ", "..%00", "%252e%252e", "..%0b", "%c0%ae%c0%ae"),
        *("%EF%BC%8E%EF%BC%8E", ".%E2%80%8B.", "%E2%80%A5", "%u002e%u002e", "%U002E.", "..%3fa", "..%23a"),
    )
]


PATHS = ["{0}/admin", "a/{0}/{0}/admin", "a/{0}", "a\\{0}\\admin", "a%2f{0}%2fadmin", "a%5c{0}%5Cb"]
FOLDERS = ["/openai/v1/", "/anthropic/", "/agents/x/openai/v1/"]
NOBODY = {"openai": "http://0.0.0.0:1/llm/v1", "anthropic": "http://0.0.0.0:1/x"}


async def test_no_path_with_dot_segments_reaches_a_provider(fleet: Fleet) -> None:
    paths = [folder + path.format(dots) for folder in FOLDERS for path in PATHS for dots in DOTS if " " not in dots]
    assert await _statuses(fleet, paths) == dict.fromkeys(paths, 400)


async def test_other_dots_are_forwarded(fleet: Fleet) -> None:
    names = [
        "models/gpt-4.1", "files/%C3%A9t%C3%A9%20..%20b", "a%3f..b", "files/..name", "a/...", "files/.hidden", "a%2Fb",
        "models/a%25b",
    ]  # fmt: skip
    paths = [f"/openai/v1/{name}" for name in names]
    assert await _statuses(fleet, paths) == dict.fromkeys(paths, 502)


async def _statuses(fleet: Fleet, paths: list[str]) -> dict[str, int]:
    """The status of a request for each unchanged path. No server listens at the providers' addresses."""
    found = {}
    async with serving(relay_app({"default": fleet}, None, NOBODY)) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        for path in paths:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            found[path] = int((await reader.readline()).split()[1])
            writer.close()
    return found
