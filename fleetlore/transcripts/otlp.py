"""Read the spans of an OTLP export, in protobuf and in JSON; of logs what evaluates a span."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import orjson

from fleetlore.transcripts.otel_spans import EVALUATION, Span

__all__ = ["spans_of"]

# As protobuf's own JSON has it, and as OTLP's.
_WORKED = ("STATUS_CODE_OK", 1)
_FAILED = ("STATUS_CODE_ERROR", 2)


def spans_of(body: bytes, form: str, *, logs: bool = False) -> Iterator[Span]:
    """Spans of an export in the form `application/json` or `application/x-protobuf`.

    Args:
        logs: it is one of logs, of which those that evaluate a span are taken for spans below it.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, DecodeError: it is none.
    """
    if form == "application/json":
        export = orjson.loads(body)
    else:
        # They come with the extra [otel].
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request: Any = ExportLogsServiceRequest if logs else ExportTraceServiceRequest
        export = MessageToDict(request.FromString(body))
    in_hex = form == "application/json"
    for resource in export.get("resourceLogs", ()) if logs else ():
        for scope in resource.get("scopeLogs", ()):
            for record in scope.get("logRecords", ()):
                if record.get("eventName") == EVALUATION and record.get("spanId"):
                    yield _evaluation(record, in_hex=in_hex)
    for resource in export.get("resourceSpans", ()):
        shared = _attributes(resource.get("resource") or {})
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _span(span, shared, in_hex=in_hex)


def _span(span: dict[str, Any], shared: dict[str, Any], *, in_hex: bool) -> Span:
    status = span.get("status") or {}
    trace, id, parent = (_id(span, name, in_hex) for name in ("traceId", "spanId", "parentSpanId"))
    if not trace or not id:
        raise ValueError("a span without its ids")
    return Span(
        span.get("name", ""),
        trace,
        id,
        parent,
        int(span.get("startTimeUnixNano", 0)) / 1e9,
        int(span.get("endTimeUnixNano", 0)) / 1e9,
        {**shared, **_attributes(span)},
        status.get("code") in _FAILED,
        status.get("code") in _WORKED,
        status.get("message", ""),
        [(event.get("name", ""), _attributes(event)) for event in span.get("events", ())],
    )


def _evaluation(record: dict[str, Any], *, in_hex: bool) -> Span:
    trace, evaluated = _id(record, "traceId", in_hex), _id(record, "spanId", in_hex)
    time = int(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or 0) / 1e9
    return Span(EVALUATION, trace, f"evaluation of {evaluated}", evaluated, time, time, _attributes(record))


def _id(holder: dict[str, Any], name: str, in_hex: bool) -> str:
    """In hex; protobuf's own JSON has bytes in base64."""
    given = holder.get(name, "")
    return given.lower() if in_hex else b64decode(given).hex()


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
