"""The HTTP server stays within its bounds whatever clients send, and answers the others meanwhile."""

import asyncio
import contextlib
import logging
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fleetlore.errors import ConfigError
from fleetlore.http_server import PROBLEM, HttpLimits, Listener, listen
from fleetlore.limits import refusals, refused
from tests.fleetlore.relay.test_command import make_certificate
from tests.served import serving
from tests.waiting import until

ROOT = Path(__file__).parents[2]
# Long enough that no test ends by it, and short enough that no test hangs.
LONG = 120.0
SHORT = 0.25
# No answer: the request is not whole.
HALF = b"POST /echo HTTP/1.1\r\nhost: a\r\n"


class Served(NamedTuple):
    listener: Listener
    port: int
    working: asyncio.Event
    may_answer: asyncio.Event
    holding: Counter[Request]  # bytes of bodies that the application has read and not answered

    @property
    def connections(self) -> int:
        return self.listener.gate.connections.total

    @property
    def connection(self) -> Any:
        """The handler of the only connection."""
        (slot,) = self.listener.gate.slots.values()
        assert slot.end is not None
        return slot.end.__self__

    @property
    def held(self) -> int:
        return self.listener.gate.held.total


@asynccontextmanager
async def served(limits: HttpLimits, **options: Any) -> AsyncIterator[Served]:
    """An application that gives a body back, waits until it may answer, or answers much."""
    working, may_answer, holding = asyncio.Event(), asyncio.Event(), Counter[Request]()

    async def echo(request: Request) -> Response:
        parts = []
        try:
            async for part in request.stream():
                parts.append(part)
                holding[request] += len(part)
            return Response(b"".join(parts))
        finally:
            del holding[request]

    async def wait(request: Request) -> Response:
        await request.body()
        working.set()
        await may_answer.wait()
        return PlainTextResponse("done")

    async def much(request: Request) -> Response:
        return Response(b"x" * 32_000_000)

    methods = ["GET", "POST"]
    app = Starlette(routes=[Route(f"/{each.__name__}", each, methods=methods) for each in (echo, wait, much)])
    listening = listen("127.0.0.1", 0)
    async with serving(app, limits, listening=listening, **options):
        try:
            yield Served(listening[0], listening[0].getsockname()[1], working, may_answer, holding)
        finally:
            may_answer.set()


class Client:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def problem(self) -> dict[str, Any]:
        head, _, body = (await self.rest()).partition(b"\r\n\r\n")
        assert PROBLEM.encode() in head and b"connection: close" in head.lower()
        found: dict[str, Any] = orjson.loads(body)
        assert head.startswith(b"HTTP/1.1 %d " % found["status"])
        return found


@pytest.fixture
async def clients() -> AsyncIterator[list[Client]]:
    opened: list[Client] = []
    yield opened
    for each in opened:
        each.writer.transport.abort()


async def opened(clients: list[Client], to: Served, data: bytes = b"", source: str = "127.0.0.1", **tls: Any) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", to.port, local_addr=(source, 0), **tls))
    clients.append(client)
    with contextlib.suppress(ConnectionError):  # a server that waits a moment may have given it up
        await client.send(data)
    return client


async def is_answered(to: Served, source: str = "127.0.0.1", **tls: Any) -> bool:
    """Whether a whole request of another client is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", to.port, local_addr=(source, 0), **tls)
    writer.write(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
    async with asyncio.timeout(LONG):
        answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hello")


UNFINISHED = {
    "no byte": (b"", "headers_timeout"),
    "half a request line": (b"GET /ec", "headers_timeout"),
    "half the headers": (HALF, "headers_timeout"),
    "half a body": (HALF + b"content-length: 4000000\r\n\r\nabc", "body_timeout"),
    "a chunk without an end": (HALF + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "body_timeout"),
    "half a chunk": (HALF + b"transfer-encoding: chunked\r\n\r\nffffffff\r\nhello", "body_timeout"),
    "a body that waits for 100-continue": (HALF + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n", "body_timeout"),
    "half the second request": (b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\nGET /ec", "headers_timeout"),
    "half a request that is not read": (
        b"POST /none HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\na",
        "body_timeout",
    ),
}


@pytest.mark.parametrize(("data", "reason"), UNFINISHED.values(), ids=UNFINISHED)
async def test_a_request_that_does_not_end_is_given_up(clients: list[Client], data: bytes, reason: str) -> None:
    before = refusals().get(reason, 0)
    limits = HttpLimits(header_seconds=SHORT) if reason == "headers_timeout" else HttpLimits(body_seconds=SHORT)
    async with served(limits) as to:
        client = await opened(clients, to, data)
        async with asyncio.timeout(LONG):
            answer = await client.rest()
        assert refusals()[reason] == before + 1
        if b"404" not in answer:  # that one was answered before
            assert b"408" in answer and reason.encode() in answer
        await until(lambda: to.connections == 0)
        assert to.held == 0


@pytest.mark.parametrize("head", [b"GET /echo HTTP/1.1\r\nx: ", HALF + b"content-length: 4000000\r\n\r\n"])
async def test_bytes_that_drip_do_not_renew_the_limit(clients: list[Client], head: bytes) -> None:
    async with served(HttpLimits(header_seconds=SHORT, body_seconds=SHORT)) as to:
        client = await opened(clients, to, head)
        async with asyncio.timeout(LONG):
            with pytest.raises(ConnectionError):
                while True:
                    await client.send(b"a")
                    await asyncio.sleep(0.001)


async def test_a_body_has_to_grow_in_each_period(clients: list[Client]) -> None:
    async with served(HttpLimits(body_seconds=LONG)) as to:
        client = await opened(clients, to, HALF + b"content-length: 4000000\r\n\r\n")
        await until(lambda: to.connection._phase[0] == "body")
        to.connection._set_timer(LONG)
        for _ in range(3):
            await client.send(b"a" * 8_192)
            await until(lambda: to.connection._progress() - to.connection._before >= 8_192)
            to.connection._check_progress(1.0)  # as the timer does after a second
            assert to.connections == 1
        to.connection._check_progress(1.0)
        assert (await client.problem())["reason"] == "body_timeout"


async def test_a_client_that_does_not_read_its_answer_is_cut_off(clients: list[Client]) -> None:
    async with served(HttpLimits(body_seconds=SHORT)) as to:
        await opened(clients, to, b"GET /much HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: refusals().get("slow_reader", 0))
        await until(lambda: to.connections == 0)


async def test_work_of_the_server_has_no_limit(clients: list[Client]) -> None:
    async with served(HttpLimits()) as to:
        client = await opened(clients, to, b"GET /wait HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        await to.working.wait()
        assert to.connection._phase[0] == "work" and to.connection._slot.timer.cancelled()
        to.may_answer.set()
        assert (await client.rest()).endswith(b"done")


async def test_the_oldest_half_request_gives_way_to_a_new_client(clients: list[Client]) -> None:
    async with served(HttpLimits(connections=8, header_seconds=LONG)) as to:
        for _ in range(60):
            await opened(clients, to, HALF)
            assert to.connections <= 8
        assert await is_answered(to)
        assert (await clients[0].problem())["reason"] == "connection_limit"
        assert to.connections <= 8
        assert len(to.listener.gate.slots) == to.connections


async def test_requests_under_way_are_never_given_up_and_one_client_uses_a_share_of_them(clients: list[Client]) -> None:
    async with served(HttpLimits(connections=8)) as to:
        for _ in range(6):
            await opened(clients, to, b"GET /wait HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "127.0.0.2")
        await until(lambda: not any(to.listener.gate._unfinished.values()))
        for _ in range(3):
            late = await opened(clients, to, source="127.0.0.2")
            assert await late.rest() == b""
        assert await is_answered(to, "127.0.0.1")
        to.may_answer.set()
        for each in clients[:6]:
            assert (await each.rest()).endswith(b"done")
        await until(lambda: to.connections == 0)


async def test_the_client_with_the_most_connections_gives_way(clients: list[Client]) -> None:
    async with served(HttpLimits(connections=8)) as to:
        few = await opened(clients, to, HALF, "127.0.0.3")
        for number in range(40):
            await opened(clients, to, HALF, f"127.0.0.{4 + number % 2}")
        assert await is_answered(to, "127.0.0.6")
        await few.send(b"connection: close\r\ncontent-length: 2\r\n\r\nhi")
        assert (await few.rest()).endswith(b"hi"), "the oldest of all, and of a client that holds one connection"


async def test_a_tls_handshake_counts_and_has_a_limit(clients: list[Client], tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    context = ssl.create_default_context(cafile=str(certificate))
    tls = {"ssl": context, "server_hostname": "127.0.0.1"}
    async with served(HttpLimits(connections=8, header_seconds=LONG), certificate=certificate, key=key) as to:
        for _ in range(60):
            await opened(clients, to)
            assert to.connections <= 8
        assert await is_answered(to, **tls)
    async with served(HttpLimits(header_seconds=SHORT), certificate=certificate, key=key) as to:
        silent = await opened(clients, to)
        async with asyncio.timeout(LONG):
            assert await silent.rest() == b""
        await until(lambda: to.connections == 0)


async def test_bodies_that_do_not_end_hold_a_bounded_number_of_bytes(clients: list[Client]) -> None:
    bound = 2_000_000
    async with served(HttpLimits(held_bytes=bound, body_seconds=LONG)) as to:
        for _ in range(30):
            await opened(clients, to, HALF + b"content-length: 400000\r\n\r\n" + b"x" * 390_000)
            assert to.held <= bound
        assert await is_answered(to)
        assert sum(to.holding.values()) <= to.held <= bound
        assert len(to.holding) < 6


async def test_a_whole_body_counts_until_it_is_answered(clients: list[Client]) -> None:
    async with served(HttpLimits(held_bytes=1_000_000)) as to:
        request = b"POST /wait HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 600000\r\n\r\n"
        first = await opened(clients, to, request + b"x" * 600_000)
        await to.working.wait()
        second = await opened(clients, to, request + b"x" * 300_000)
        await until(lambda: refusals().get("memory_limit", 0))
        assert b"200" not in await second.rest()
        to.may_answer.set()
        assert (await first.rest()).endswith(b"done")
        await until(lambda: to.held == 0)


async def test_a_request_has_a_size(clients: list[Client]) -> None:
    async with served(HttpLimits(request_bytes=100_000)) as to:
        client = await opened(clients, to, HALF + b"transfer-encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            while True:
                await client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
                assert to.held <= 400_000, "at most one more read of a socket"
                await asyncio.sleep(0)
        assert refusals()["request_too_large"]


NO_HTTP = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "two lengths": HALF + b"content-length: 1\r\ncontent-length: 2\r\n\r\na",
    "a negative length": HALF + b"content-length: -1\r\n\r\n",
    "a length that is no number": HALF + b"content-length: many\r\n\r\n",
    "a header without an end": HALF + b"x: " + b"a" * 100_000,
    "headers without an end": HALF + b"x: a\r\n" * 20_000,
    "two hosts": b"GET /echo HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "no chunk": HALF + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP)
async def test_bad_http_is_counted(clients: list[Client], data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    before = refusals().get("bad_http", 0)
    async with served(HttpLimits()) as to:
        for _ in range(20):
            client = await opened(clients, to)
            client.writer.write(data)
            answer = await client.rest()
            assert not answer or b" 400 " in answer
        assert refusals()["bad_http"] == before + 20
        assert await is_answered(to)
    assert len(caplog.records) <= 6 and not [each for each in caplog.records if each.exc_info]


async def test_a_bad_chunk_after_the_answer_ends_it(clients: list[Client], caplog: pytest.LogCaptureFixture) -> None:
    async with served(HttpLimits()) as to:
        client = await opened(clients, to, b"POST /none HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\nNot Found")
        await client.send(b"xyz\r\n")
        assert await client.rest() == b""
    assert not [each for each in caplog.records if each.exc_info]


ODD = {
    "HTTP/1.0": (b"GET /echo HTTP/1.0\r\n\r\n", 1),
    "pipelined": (b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n" * 49 + b"GET /echo HTTP/1.0\r\n\r\n", 50),
    "an upgrade": (
        b"GET /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
        b"sec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==\r\nsec-websocket-version: 13\r\n\r\n",
        1,
    ),
}


@pytest.mark.parametrize(("data", "answers"), ODD.values(), ids=ODD)
async def test_odd_http_is_answered(clients: list[Client], data: bytes, answers: int) -> None:
    async with served(HttpLimits()) as to:
        client = await opened(clients, to, data)
        assert (await client.rest()).count(b" 200 OK") == answers
        await until(lambda: to.connections == 0)
        assert to.held == 0


async def test_a_client_that_goes_away_leaves_no_trace(clients: list[Client], caplog: pytest.LogCaptureFixture) -> None:
    async with served(HttpLimits()) as to:
        for _ in range(20):
            client = await opened(clients, to, HALF + b"content-length: 9\r\n\r\na")
            client.writer.transport.abort()
        await until(lambda: to.connections == 0)
        assert await is_answered(to)
    assert not caplog.records


FEW_FILES = """
import asyncio, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), 600))
from fleetlore.http_server import listen
from fleetlore.http_server import server
from starlette.applications import Starlette
async def main():
    listening = listen("127.0.0.1", 0)
    running = server(Starlette(), listening)
    print(listening[0].getsockname()[1], resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
    await running.serve(listening)
asyncio.run(main())
"""


async def test_open_files_never_run_out(clients: list[Client]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FEW_FILES, "300", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        port, files = map(int, (await process.stdout.readline()).split())
        assert files == 600, "the soft limit is raised to the hard one"
        to = Served(listen("127.0.0.1", 0)[0], port, asyncio.Event(), asyncio.Event(), Counter())
        for _ in range(900):
            await opened(clients, to, HALF)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(LONG):
            assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()
        to.listener.close()
    finally:
        process.terminate()
    _, log = await process.communicate()
    assert b"Too many open files" not in log and len(log.splitlines()) < 20


def test_a_flood_of_refusals_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            refused("flood_of_a_test", "too many")
    assert refusals()["flood_of_a_test"] == 1000
    assert len(caplog.records) == 10


def test_a_port_that_is_taken_and_a_host_that_is_none_are_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.invalid:1 cannot be listened on"):
        listen("nowhere.invalid", 1)
    (taken,) = listen("127.0.0.1", 0)
    with taken, pytest.raises(ConfigError, match="cannot be listened on: Address already in use; choose another port"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_every_listener_is_of_this_kit() -> None:
    """A server that is opened elsewhere has none of these bounds."""
    servers = re.compile(r"^ *(import|from) (uvicorn|hypercorn|granian|aiohttp|http\.server|socketserver)\b", re.M)
    files = (path for package in ("fleetlore", "models", "sinks", "streams") for path in (ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)) for path in files if servers.search(path.read_text())}
    assert found == {"fleetlore/http_server.py", "sinks/health_endpoint.py"}


async def test_a_stream_ends_with_the_server_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    left = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            left.set()

    async def stream(request: Request) -> Response:
        return StreamingResponse(lines())

    async with serving(Starlette(routes=[Route("/", stream)])) as address:
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"one")
    async with asyncio.timeout(120):
        await left.wait()
        await reader.read()
    writer.close()
    assert not caplog.records
