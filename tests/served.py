"""Serve an application in the test's process, as the commands serve it."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import uvicorn.server

from fleetlore.http_server import HttpLimits, Listener, listen, server

__all__ = ["metric", "serving"]

# uvicorn looks every 0.1 s whether it should end, and gives its connections as long to close.
_HURRIED = {**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(seconds / 20)}
uvicorn.server.asyncio = SimpleNamespace(**_HURRIED)


def metric(port: int, pattern: str) -> list[Any]:
    """What a pattern finds at the beginnings of lines in the figures that a process exports."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as page:
        return re.findall(f"^{pattern}", page.read().decode(), re.MULTILINE)


@asynccontextmanager
async def serving(
    app: Any, limits: HttpLimits | None = None, *, listening: Sequence[Listener] = (), **options: Any
) -> AsyncIterator[str]:
    """The address of an application, on a real socket: a free port where none is given."""
    listening = listening or listen("127.0.0.1", 0)
    running = server(app, listening, limits, **options)
    task = asyncio.create_task(running.serve(list(listening)))
    while not running.started:
        await asyncio.sleep(0.001)
    try:
        yield "http://127.0.0.1:{1}".format(*listening[0].getsockname()) if listening[0].family == 2 else ""
    finally:
        running.should_exit = True
        await task
