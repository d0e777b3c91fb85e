"""Receive OpenTelemetry's OTLP over HTTP, in protobuf and JSON, and send its traces as sessions.

What cannot be held is answered with 429 and Retry-After, so that the exporter or the Collector sends it again.
"""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlore.agent.fleet import Fleet
from fleetlore.join.otel import Traces
from fleetlore.join.otel_spans import Span

__all__ = ["receiving_app", "spans_of"]

# Spans of a trace come children first, from several processes and in batches of some seconds.
SILENT_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5
_MAX_BODY = 16 * 1024 * 1024
_FAILED = ("STATUS_CODE_ERROR", 2)


def receiving_app(fleet: Fleet, *, silent_seconds: float = SILENT_SECONDS, max_spans: int = 50_000) -> Starlette:
    """An ASGI application that takes `/v1/traces`; enter the fleet before it runs.

    Args:
        silent_seconds: a trace of which nothing came for so long is over.
    """
    traces = Traces(fleet, max_spans=max_spans)

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
        body, form = await request.body(), request.headers.get("content-type", "").partition(";")[0]
        try:
            if request.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if len(body) > _MAX_BODY:
                return Response(f"more than {_MAX_BODY} bytes", 413)
            for span in spans_of(body, form):
                traces.add(span)
        except (ValueError, KeyError, TypeError, AttributeError, DecodeError, OSError, EOFError) as error:
            return Response(f"no OTLP: {error}", 400)
        answer = b"{}" if form == "application/json" else ExportTraceServiceResponse().SerializeToString()
        return Response(answer, media_type=form)

    return Starlette(routes=[Route("/v1/traces", take, methods=["POST"])], lifespan=lifespan)


def spans_of(body: bytes, form: str) -> Iterator[Span]:
    """Spans of an export in the form `application/json` or `application/x-protobuf`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, DecodeError: it is none.
    """
    if form == "application/json":
        export = orjson.loads(body)
    else:
        export = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for resource in export.get("resourceSpans", ()):
        shared = _attributes(resource.get("resource") or {})
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _span(span, shared, in_hex=form == "application/json")


def _span(span: dict[str, Any], shared: dict[str, Any], *, in_hex: bool) -> Span:
    status = span.get("status") or {}
    trace, id, parent = (span.get(name, "") for name in ("traceId", "spanId", "parentSpanId"))
    if not in_hex:  # protobuf's own JSON has bytes in base64
        trace, id, parent = (b64decode(each).hex() for each in (trace, id, parent))
    if not trace or not id:
        raise ValueError("a span without its ids")
    return Span(
        span.get("name", ""),
        trace.lower(),
        id.lower(),
        parent.lower(),
        int(span.get("startTimeUnixNano", 0)) / 1e9,
        int(span.get("endTimeUnixNano", 0)) / 1e9,
        {**shared, **_attributes(span)},
        status.get("code") in _FAILED,
        status.get("message", ""),
        [(event.get("name", ""), _attributes(event)) for event in span.get("events", ())],
    )


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: _value(each.get("value") or {}) for each in holder.get("attributes", ())}


def _value(value: dict[str, Any]) -> Any:
    for name, given in value.items():
        if name == "intValue":
            return int(given)
        if name == "arrayValue":
            return [_value(each) for each in given.get("values", ())]
        if name == "kvlistValue":
            return {each["key"]: _value(each.get("value") or {}) for each in given.get("values", ())}
        return given
    return None
