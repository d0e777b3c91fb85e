"""Receive OpenTelemetry's OTLP over HTTP and gRPC, and send its traces as sessions.

What cannot be held is answered so that the exporter or the Collector sends it again: by 429 and Retry-After over HTTP.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlore.join.otlp.traces import MAX_BODY, NO_OTLP, Traces
from fleetlore.transcripts.otlp import spans_of

__all__ = ["receiving_app"]

# Spans of a trace come children first, from several processes and in batches of some seconds.
SILENT_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5
_GZIP = 16 + zlib.MAX_WBITS


def receiving_app(traces: Traces, *, silent_seconds: float = SILENT_SECONDS) -> Starlette:
    """An ASGI application that takes `/v1/traces`, and of `/v1/logs` evaluations; enter their fleet before it runs.

    Args:
        silent_seconds: a trace of which nothing came for so long is over.
    """

    async def close_silent() -> None:
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, silent_seconds))
            traces.close_silent(silent_seconds)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        closing = asyncio.create_task(close_silent())
        yield
        closing.cancel()
        traces.close_silent(0.0)

    async def take(request: Request) -> Response:
        if traces.full:
            return Response("the buffer is full", 429, {"Retry-After": str(_RETRY_SECONDS)})
        form, logs = request.headers.get("content-type", "").partition(";")[0], request.url.path == "/v1/logs"
        try:
            body = await _body(request)
            if body is None:
                return Response(f"more than {MAX_BODY} bytes", 413)
            for span in spans_of(body, form, logs=logs):
                traces.add(span)
        except NO_OTLP as error:
            return Response(f"no OTLP: {error}", 400)
        answer = b"{}" if form == "application/json" else b""  # protobuf's empty answer
        return Response(answer, media_type=form)

    routes = [Route(path, take, methods=["POST"]) for path in ("/v1/traces", "/v1/logs")]
    return Starlette(routes=routes, lifespan=lifespan)


async def _body(request: Request) -> bytes | None:
    """The body, unpacked; None where it is too large, which is known before all of it is here.

    Raises:
        ValueError, zlib.error: it is not packed as it says.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            return None
    if request.headers.get("content-encoding") == "gzip":
        unpacking = zlib.decompressobj(_GZIP)
        body = unpacking.decompress(body, MAX_BODY + 1)
        if len(body) > MAX_BODY:
            return None
        if not unpacking.eof:
            raise ValueError("it is cut off")
    return body
