"""Read the spans of an OTLP export, in protobuf and in JSON."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import orjson

from fleetlore.transcripts.otel_spans import Span

__all__ = ["spans_of"]

# As protobuf's own JSON has it, and as OTLP's.
_WORKED = ("STATUS_CODE_OK", 1)
_FAILED = ("STATUS_CODE_ERROR", 2)


def spans_of(body: bytes, form: str) -> Iterator[Span]:
    """Spans of an export in the form `application/json` or `application/x-protobuf`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, DecodeError: it is none.
    """
    if form == "application/json":
        export = orjson.loads(body)
    else:
        # They come with the extra [otel].
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

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
        status.get("code") in _WORKED,
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
