"""Send one request to an ASGI application without a server: as uvicorn hands it on, and as fast as the application."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

# A request that is not answered by then hangs, on a busy machine too.
_PATIENCE_SECONDS = 60.0


class Asked(NamedTuple):
    """A request. `path` is as it stands on the wire, with its query."""

    method: str
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Answer(NamedTuple):
    """The beginning of an answer: of a stream the first part."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def size(asked: Asked) -> int:
    return len(asked.path) + len(asked.body) + sum(len(name) + len(value) for name, value in asked.headers)


async def ask(app: Any, asked: Asked) -> Answer:
    """The answer of an application. Raises what the application raises."""
    path, _, query = asked.path.partition(b"?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": asked.method, "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"), "raw_path": path, "query_string": query,
        "root_path": "", "headers": [(name.lower(), value) for name, value in asked.headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": asked.body, "more_body": False}]
    status, headers, parts = 0, dict[bytes, bytes](), list[bytes]()
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            if message.get("more_body") and parts[-1]:
                gone.set()  # enough of a stream

    async with asyncio.timeout(_PATIENCE_SECONDS):
        await app(scope, receive, send)
    return Answer(status, headers, b"".join(parts))
