"""OpenTelemetry exports: spans and evaluations in protobuf and in JSON, packed or not, over HTTP."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fleetlore.join.otlp import Traces, receiving_app
from fleetlore.limits import refusals
from tests.fuzz.asgi import Asked, ask, size
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, changed, json_of, mutated
from tests.fuzz.worker import Worker, fleet_of

# Valid both in hex and in base64, as all ids here.
_TRACE = "ab" * 16
_NOW = 1_700_000_000 * 10**9


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def _span(number: int, parent: int, *attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = {"traceId": _TRACE, "spanId": f"{number:016d}", "name": "execute_tool search", "kind": 1}
    about |= {"parentSpanId": f"{parent:016d}"} if parent else {}
    times = {"startTimeUnixNano": str(_NOW + number), "endTimeUnixNano": str(_NOW + number + 10**9)}
    return {**about, **times, "attributes": list(attributes), **more}


_TOOL = (
    _attribute("gen_ai.operation.name", "execute_tool"),
    _attribute("gen_ai.tool.name", "search"),
    _attribute("gen_ai.tool.call.arguments", '{"index": "products"}'),
)
_AGENT = _attribute("gen_ai.operation.name", "invoke_agent"), _attribute("input.value", "buy")
_ERROR = {"name": "exception", "attributes": [_attribute("exception.message", "no"), _attribute("exception.type", "E")]}
_RESULT = {"key": "gen_ai.evaluation.score.label", "value": {"stringValue": "pass"}}
_SCOPE = [
    _span(1, 0, *_AGENT),
    _span(2, 1, *_TOOL, _attribute("gen_ai.tool.call.result", "three chairs")),
    _span(3, 1, *_TOOL, status={"code": 2, "message": "no"}, events=[_ERROR]),
    _span(4, 1, {"key": "x", "value": {"kvlistValue": {"values": [_RESULT]}}}, *_TOOL),
]
_RESOURCE = {"attributes": [_attribute("service.name", "shop")]}
_SPANS = {"resourceSpans": [{"resource": _RESOURCE, "scopeSpans": [{"spans": _SCOPE}]}]}
_RECORD = {
    "traceId": _TRACE, "spanId": f"{1:016d}", "eventName": "gen_ai.evaluation.result", "timeUnixNano": str(_NOW),
    "attributes": [_RESULT],
}  # fmt: skip
_LOGS = {"resourceLogs": [{"scopeLogs": [{"logRecords": [_RECORD]}]}]}
_VALID = {b"/v1/traces": (_SPANS, ExportTraceServiceRequest), b"/v1/logs": (_LOGS, ExportLogsServiceRequest)}
_PROMISED = {200, 400, 413, 415, 429}


def _protobuf(random: Random, valid: Any, kind: Any) -> bytes:
    try:
        message = ParseDict(changed(random, valid, random.randrange(3)), kind(), ignore_unknown_fields=True)
        packed: bytes = message.SerializeToString()
    except Exception:  # whatever protobuf cannot write: its errors have no common base
        packed = ParseDict(valid, kind()).SerializeToString()
    return mutated(random, packed) if chance(random, 3) else packed


def make(random: Random) -> Asked:
    path = random.choice((b"/v1/traces", b"/v1/traces", b"/v1/logs"))
    valid, kind = _VALID[path]
    valid = json.loads(json.dumps(valid).replace(_TRACE, f"{random.randrange(1_000):032d}"))
    if chance(random, 2):
        form, body = b"application/json", any_bytes(random, lambda random: json_of(random, valid))
    else:
        form, body = b"application/x-protobuf", any_bytes(random, lambda random: _protobuf(random, valid, kind))
    headers = [(b"content-type", form if not chance(random, 50) else random.choice((b"", b"text/plain", b";")))]
    if chance(random, 8):
        headers.append((b"content-encoding", b"gzip"))
        body = body if chance(random, 4) else gzip.compress(body, 1, mtime=0)
        body = mutated(random, body) if chance(random, 4) else body
    return Asked("POST", path, tuple(headers), body)


async def check(exports: Sequence[Asked]) -> Counter[str]:
    """Every export is answered as promised, and a worker takes the events of every trace."""
    found, worker, before = Counter[str](), Worker(), sum(refusals().values())
    fleet = fleet_of(worker)
    traces = Traces(fleet)
    app = receiving_app(traces)
    async with app.router.lifespan_context(app):
        for each in exports:
            answer = await ask(app, each)
            assert answer.status in _PROMISED, f"{answer.status} for {each}"
            assert answer.status == 200 or answer.body, f"a refusal without a reason: {answer}"
            found["taken" if answer.status == 200 else str(answer.status)] += 1
            if found["taken"] % 16 == 0:
                list(traces.close_silent(0.0))
    worker.read()
    refused = found.total() - found["taken"]
    assert sum(refusals().values()) - before >= refused, f"not all of {refused} refusals are counted: {refusals()}"
    return found


OTLP = Boundary("otlp", make, check, size, full=100_000, batch=1_000)
