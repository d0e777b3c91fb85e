"""Bytes on the relay's socket: HTTP requests that are cut, mixed up, doubled or none at all."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, mutated
from tests.fuzz.relay import make_frame, make_hook, make_request, relay
from tests.fuzz.worker import Worker
from tests.served import serving

_AT_ONCE = 50
# A connection that is neither answered nor closed by then hangs, on a busy machine too.
_PATIENCE_SECONDS = 60.0
_LINES = (
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: x",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Expect: 100-continue", b"Host:",
    b"Host: a\x00b", b"Connection: upgrade", b"Upgrade: websocket", b": empty", b"no colon", b" folded",
    b"X: " + b"y" * 70_000,
)  # fmt: skip
_STARTS = (
    b"GET / HTTP/9.9", b"PRI * HTTP/2.0", b"\x16\x03\x01\x02", b"GET", b"POST /v1/events",
    b"GET http://[::1 HTTP/1.1",
)  # fmt: skip
_CHUNKS = (b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffff\r\n", b"z\r\n", b"0\r\n")


def _request(random: Random) -> bytes:
    asked = random.choice((make_request, make_hook, make_frame))(random)
    start = b"%b %b HTTP/1.1" % (asked.method.encode(), asked.path) if not chance(random, 8) else random.choice(_STARTS)
    lines = [start, b"Host: a", *(b"%b: %b" % header for header in asked.headers)]
    if not chance(random, 6):
        lines.append(b"Content-Length: %d" % len(asked.body))
    lines += [random.choice(_LINES) for _ in range(random.randrange(3) if chance(random, 2) else 0)]
    body = random.choice(_CHUNKS) if chance(random, 8) else asked.body
    return random.choice((b"\r\n", b"\r\n", b"\n")).join(lines) + b"\r\n\r\n" + body


def make(random: Random) -> bytes:
    sent = any_bytes(random, _request)
    sent = mutated(random, sent) if chance(random, 3) else sent
    return sent + _request(random) if chance(random, 10) else sent  # two of one connection


async def _exchange(port: int, sent: bytes) -> bytes:
    """Return the answer of a connection until it closes. The client closes its side first."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = b""
        with suppress(ConnectionError):
            writer.write(sent)
            writer.write_eof()
            # A stream of the lore has no end: its beginning is enough.
            while (part := await reader.read(65_536)) and b"text/event-stream" not in (found := found + part):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return found


async def check(inputs: Sequence[bytes]) -> Counter[str]:
    """Every connection is answered or closed, never with a server's error, and the relay answers the next one."""
    found: Counter[str] = Counter()
    nowhere = {"openai": "http://127.0.0.1:9", "anthropic": "http://127.0.0.1:9"}
    async with relay(Worker(), nowhere) as app, serving(app) as address:
        port = int(address.rpartition(":")[2])
        for start in range(0, len(inputs), _AT_ONCE):
            some = inputs[start : start + _AT_ONCE]
            answers = await asyncio.gather(*(_exchange(port, each) for each in some))
            found.update(map(_answer, some, answers))
        health = await _exchange(port, b"GET /v1/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert health.startswith(b"HTTP/1.1 200"), f"the relay does not fare well: {health[:200]!r}"
    return found


def _answer(sent: bytes, given: bytes) -> str:
    if not given:
        return "closed"
    status = given[9:12]
    # 502: no provider listens.
    assert given.startswith(b"HTTP/1.1 ") and (status < b"500" or status == b"502"), f"{given[:300]!r} for {sent!r}"
    return "taken" if status < b"300" else status.decode()


SOCKETS = Boundary("sockets", make, check, len, full=20_000, batch=500)
