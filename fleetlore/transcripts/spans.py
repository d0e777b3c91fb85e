"""Map the spans of agents and tools in an OTLP export to a session's events.

Emitters name `gen_ai.*` differently, so each fact has names in order of preference.
"""

import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import msgspec

from fleetlore.transcripts.calls import json_or_text
from fleetlore.transcripts.protobuf import Fields, ProtobufReader
from fleetlore.transcripts.session import LATEST, MALFORMED, Conversation, LoggedSession
from fleetlore.wire.decode import MAX_VALUES, read_json

__all__ = ["MEMORY_STORE", "OURS", "Span", "evaluation_of", "is_agent", "session_of", "spans_of"]

_TOOL_KINDS = {("gen_ai.operation.name", "execute_tool"), ("openinference.span.kind", "TOOL"),
               ("traceloop.span.kind", "tool"), ("gen_ai.operation.name", "search_memory"),
               ("langfuse.observation.type", "tool"), ("ai.operationId", "ai.toolCall"),
               ("mlflow.spanType", "TOOL"), ("mcp.method.name", "tools/call")}  # fmt: skip
_AGENT_KINDS = {("gen_ai.operation.name", "invoke_agent"), ("openinference.span.kind", "AGENT"),
                ("traceloop.span.kind", "workflow"), ("traceloop.span.kind", "agent"),
                ("langfuse.observation.type", "agent"), ("mlflow.spanType", "AGENT"),
                ("ai.operationId", "ai.generateText"), ("ai.operationId", "ai.streamText")}  # fmt: skip
# Names the fleet's own lore in a `search_memory` span.
MEMORY_STORE, OURS = "gen_ai.memory.store.id", "fleetlore"
_EVALUATION = "gen_ai.evaluation.result"
_PASSED, _FAILED = ("pass", "passed", "correct"), ("fail", "failed", "incorrect")
_TOOL_NAME = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "ai.toolCall.name")
# Google's ADK repeats the results of calls side by side under it.
_MERGED = "(merged tools)"
_ARGUMENTS = (
    "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value", "traceloop.entity.input",
    "gen_ai.memory.query.text", "tool_arguments", "ai.toolCall.args", "langfuse.observation.input", "mlflow.spanInputs",
    "gen_ai.prompt",
)  # fmt: skip
_RESULT = (
    "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value", "traceloop.entity.output",
    "gen_ai.memory.records", "tool_response", "ai.toolCall.result", "langfuse.observation.output",
    "mlflow.spanOutputs", "gen_ai.completion",
)  # fmt: skip
_GOAL = ("gen_ai.input.messages", "ai.prompt", *_ARGUMENTS)
_MARKS = (("gen_ai.tool.status", "error"), ("langfuse.observation.level", "ERROR"))
_CONVERSATION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
_AGENT = ("gen_ai.agent.id", "gen_ai.agent.name", "service.instance.id", "service.name")
_EXCEPTIONS = ("exception", "gen_ai.execute_tool.exception")
_STATUS_OK, _STATUS_ERROR = ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)
_TRACES, _LOGS = ("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords")
_SHOWN = 200
_MAX_ID = 64  # twice a trace id in hex
# A call that was cancelled, or waits for a person, says nothing of its tool.
_CANCELLED = ("CancelledError", "KeyboardInterrupt", "AbortError", "GraphInterrupt", "ApprovalRequired", "CallDeferred")
_MAX_BETWEEN = 16  # spans between a call's span and another of it
# Fields of an export: a Collector's full batch of 8,192 spans has a million. They take at most 0.45 GB.
_MAX_FIELDS = 2 * MAX_VALUES
# Resources and scopes of an export: an empty one costs 4 µs. A full batch has at most 16,384.
_MAX_GROUPS = 40_000


class Span(NamedTuple):
    """A span that ended. Ids are in hex. `attributes` include its resource's names of agent and conversation.

    Most spans neither `failed` (status ERROR) nor `worked` (OK).
    """

    name: str
    trace: str
    id: str
    parent: str
    start: float
    end: float
    attributes: Mapping[str, Any]
    failed: bool = False
    worked: bool = False
    status: str = ""
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()


_Call = tuple[Span, str, Any, Any]
_Group = TypeVar("_Group")


def session_of(spans: Sequence[Span]) -> LoggedSession | None:
    """Return None if no tool was called."""
    calls = sorted(_once(spans), key=lambda call: (call[0].end, call[0].start, call[0].id))
    if not calls:
        return None
    tools = [call[0] for call in calls]
    agents = sorted(filter(is_agent, spans), key=lambda span: span.start)
    conversation, agent = (
        # The outermost agent decides.
        str(next(filter(None, (span.attributes.get(name) for name in names for span in (*agents, *tools[::-1]))), ""))
        for names in (_CONVERSATION, _AGENT)
    )
    talk = Conversation("otel", conversation, spans[0].trace, agent=agent, conversation=conversation)
    asked = [_first(span.attributes, _GOAL) for span in agents]
    # Some emitters put the messages only on the spans of model calls.
    asked += [span.attributes.get(_GOAL[0]) for span in sorted(spans, key=lambda span: span.start)]
    talk.say("user", next(filter(None, map(_said, asked)), ""), min(span.start for span in spans))
    if agents and agents[0].failed and not _is_unknown(agents[0]):
        talk.session.end(None, False)
    ids = {span.id for span in agents}
    if evaluated := [found for span in spans if (found := evaluation_of(span, ids)) is not None]:
        talk.session.end(None, all(evaluated))
    for span, tool, arguments, result in calls:
        error = _error(span, has_result=result is not None)
        talk.call(span.id, tool, json_or_text(arguments))
        # A call with arguments and no result was cut off.
        if _is_unknown(span) or (arguments is not None and result is None and error is None and not span.worked):
            continue
        marked = True if error is not None else False if span.worked else None
        talk.result(span.id, error or json_or_text(result), marked, span.end)
    return talk.done()


def _call_of(span: Span) -> _Call | None:
    attributes, operation = span.attributes, span.attributes.get("gen_ai.operation.name")
    # Old versions of pydantic-ai name no operation.
    is_call = _is(span, _TOOL_KINDS) or ("gen_ai.tool.name" in attributes and operation is None)
    name = _first(attributes, _TOOL_NAME) or (operation if operation == "search_memory" else None)
    if not is_call or name == _MERGED or attributes.get(MEMORY_STORE) == OURS:
        return None
    said = dict(span.events)  # of Strands
    given = _first(attributes, _ARGUMENTS), _first(attributes, _RESULT)
    events = said.get("gen_ai.tool.message", {}).get("content"), said.get("gen_ai.choice", {}).get("message")
    arguments, result = (known if known is not None else other for known, other in zip(given, events, strict=True))
    return span, str(name or re.sub("^(execute_tool|tools/call) ", "", span.name)), arguments, result


def _once(spans: Sequence[Span]) -> Iterator[_Call]:
    """Yield each call once, with its last failure: clients and servers of MCP add spans of it below another."""
    calls = list(filter(None, map(_call_of, spans)))
    parents = {span.id: span.parent for span in spans}
    known = {span.id: (tool, json_or_text(arguments)) for span, tool, arguments, _ in calls}
    again = dict[str, str]()  # a span of another's call, by id
    for id, (tool, arguments) in known.items():
        above = parents[id]
        for _ in range(_MAX_BETWEEN):
            outer, asked = known.get(above, (None, None))
            if outer == tool and above != id and arguments in (None, asked):
                again[id] = above
            elif outer == tool and above != id and asked is None:
                again[above] = id
            above = parents.get(above, "")
    others: dict[str, list[Span]] = {}
    for span, *_ in calls:
        if kept := again.get(span.id):
            for _ in range(_MAX_BETWEEN):
                kept = again.get(kept, kept)
            others.setdefault(kept, []).append(span)
    for span, tool, arguments, result in calls:
        if span.id not in again:
            yield _ended(span, others.get(span.id, ()), has_result=result is not None), tool, arguments, result


def _ended(span: Span, others: Sequence[Span], *, has_result: bool) -> Span:
    if span.worked or not others or _error(span, has_result=has_result) is not None:
        return span
    latest = max(each.start for each in others)
    last = (each for each in others if (each.end > latest or each.start == latest) and not _is_unknown(each))
    errors = [error for each in last if (error := _error(each, has_result=has_result)) is not None]
    return span._replace(failed=True, status=max(errors, key=len)) if errors else span


def is_agent(span: Span) -> bool:
    return _is(span, _AGENT_KINDS)


def evaluation_of(span: Span, runs: Collection[str]) -> bool | None:
    """Whether a run succeeded by its evaluations' labels, or None."""
    found = [attributes for name, attributes in span.events if name == _EVALUATION] if span.id in runs else []
    if span.name == _EVALUATION and span.parent in runs:
        found.append(span.attributes)
    labels = {str(each.get("gen_ai.evaluation.score.label", "")).lower() for each in found}
    return None if labels.isdisjoint((*_PASSED, *_FAILED)) else labels.isdisjoint(_FAILED)


def _is_unknown(span: Span) -> bool:
    kinds = [str(attributes.get("exception.type", "")) for name, attributes in span.events if name in _EXCEPTIONS]
    return any(kind.rpartition(".")[2] in _CANCELLED for kind in (*kinds, str(span.attributes.get("error.type", ""))))


def _error(span: Span, *, has_result: bool) -> str | None:
    """Return the text of its error, "" if its result has it, or None if it did not fail."""
    for name, attributes in span.events:
        if name in _EXCEPTIONS:
            kind, text = str(attributes.get("exception.type", "")), str(attributes.get("exception.message", ""))
            return f"{kind.rpartition('.')[2]}: {text}" if kind else text
    kind = str(span.attributes.get("error.type") or "").rpartition(".")[2]
    if not kind and not span.failed and not any(span.attributes.get(name) == mark for name, mark in _MARKS):
        return None
    status = span.status or str(span.attributes.get("langfuse.observation.status_message") or "")
    return status if not kind or (has_result and not status) else f"{kind}: {status}"


def _is(span: Span, kinds: set[tuple[str, str]]) -> bool:
    return any(str(span.attributes.get(name)).strip('"') == value for name, value in kinds)  # MLflow's are JSON


def _first(attributes: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)


def _said(value: Any) -> str:
    given = json_or_text(value)
    if isinstance(given, dict):  # the Vercel AI SDK
        given = given.get("messages") or given.get("prompt") or given
    for message in given if isinstance(given, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            found = message.get("parts") or message.get("content")
            parts = found if isinstance(found, list) else [found]
            said = (part.get("content") or part.get("text") if isinstance(part, dict) else part for part in parts)
            return next((each for each in said if each and isinstance(each, str)), "")
    return given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""


def spans_of(body: bytes, form: str, *, logs: bool = False) -> Iterator[Span | ValueError]:
    """Yield the spans of an export (`form`: its content type), and an error for each malformed one.

    `logs`: a log record that evaluates a span is read as a span below that. Raises ValueError: the body is no export.
    """
    for resource, records in (_of_json if form == "application/json" else _of_protobuf)(body, logs):
        try:
            about = _attributes(resource)
            shared = {name: about[name] for name in (*_CONVERSATION, *_AGENT) if name in about}
        except MALFORMED:
            shared = {}
        for record in records:
            try:
                if isinstance(record, ValueError):
                    yield record
                elif not logs:
                    yield _span(record, shared)
                elif record.get("eventName") == _EVALUATION and record.get("spanId"):
                    yield _evaluation(record)
            except MALFORMED as error:
                yield ValueError(f"{str(record)[:_SHOWN]}: {error!r}")


def _of_json(body: bytes, logs: bool) -> Iterator[tuple[Any, Iterable[Any]]]:
    export, bounded = read_json(body, _MAX_FIELDS), _bounded()
    if not isinstance(export, dict):
        raise ValueError("an export is a JSON object")
    resources, scopes, records = _LOGS if logs else _TRACES
    for each in bounded(_listed(export, resources)):
        found = (record for scope in bounded(_listed(each, scopes)) for record in _listed(scope, records))
        yield (each.get("resource") or {} if isinstance(each, dict) else {}), found


def _of_protobuf(body: bytes, logs: bool) -> Iterator[tuple[Any, Iterable[Any]]]:
    """A text that is not UTF-8 makes its whole message unreadable, so each record is read alone."""
    export, bounded = ProtobufReader(_MAX_FIELDS), _bounded()

    def read(message: bytes, fields: Fields) -> Any:
        try:
            return export.read(message, fields)
        except MALFORMED as error:
            return ValueError(f"no protobuf: {error}")

    record = _LOG if logs else _SPAN
    # The messages of traces and of logs have the same numbers: resource 1, scopes 2, records 2.
    for each in bounded(export.parts(body, 1)):
        found = (read(part, record) for scope in bounded(export.parts(each, 2)) for part in export.parts(scope, 2))
        yield read(b"".join(export.parts(each, 1)), _RESOURCE), found


def _bounded() -> Callable[[Iterable[_Group]], Iterator[_Group]]:
    numbers = count(1)

    def bounded(groups: Iterable[_Group]) -> Iterator[_Group]:
        for each, number in zip(groups, numbers, strict=False):
            if number > _MAX_GROUPS:
                raise ValueError(f"an export of more than {_MAX_GROUPS} resources and scopes: send smaller batches")
            yield each

    return bounded


def _listed(holder: Any, name: str) -> list[Any]:
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []


def _span(span: dict[str, Any], shared: dict[str, Any]) -> Span:
    status = span.get("status") or {}
    trace, id, parent = (_id(span, name) for name in ("traceId", "spanId", "parentSpanId"))
    if not trace or not id:
        raise ValueError("a span without its ids")
    start, end = (_moment(span.get(f"{name}TimeUnixNano")) for name in ("start", "end"))
    name, attributes = str(span.get("name") or ""), shared | _attributes(span)
    code, said = status.get("code"), str(status.get("message") or "")
    failed, worked = code in _STATUS_ERROR, code in _STATUS_OK
    events = [(event.get("name", ""), _attributes(event)) for event in span.get("events") or ()]
    return Span(name, trace, id, parent, start, end, attributes, failed, worked, said, events)


def _evaluation(record: dict[str, Any]) -> Span:
    trace, evaluated = _id(record, "traceId"), _id(record, "spanId")
    time = _moment(record.get("timeUnixNano") or record.get("observedTimeUnixNano"))
    return Span(_EVALUATION, trace, f"evaluation of {evaluated}", evaluated, time, time, _attributes(record))


def _moment(nanoseconds: Any) -> float:
    seconds = int(nanoseconds or 0) / 1e9
    return seconds if 0 <= seconds < LATEST else 0.0


def _id(holder: dict[str, Any], name: str) -> str:
    given = str(holder.get(name) or "")
    if len(given) > _MAX_ID:
        raise ValueError(f"{name} has {len(given)} characters")
    return given.lower()


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    """Collections become JSON: their objects would take many times the bytes of an export."""
    found = {each["key"]: _value(each.get("value") or {}) for each in holder.get("attributes") or ()}
    of_text = ((name, isinstance(value, list | dict), value) for name, value in found.items())
    return {name: msgspec.json.encode(value).decode() if is_many else value for name, is_many, value in of_text}


def _value(value: dict[str, Any]) -> Any:
    for name, given in value.items():
        if name == "intValue":
            return int(given)
        if name == "arrayValue":
            return [_value(each) for each in given.get("values") or ()]
        if name == "kvlistValue":
            return {each["key"]: _value(each.get("value") or {}) for each in given.get("values") or ()}
        return given
    return None


def _double(value: bytes) -> float | str:
    number = struct.unpack("<d", value)[0]
    return number if math.isfinite(number) else str(number)


_text, _fixed = partial(str, encoding="utf-8"), partial(int.from_bytes, byteorder="little")
_ANY: Fields = {
    1: ("stringValue", _text), 2: ("boolValue", bool), 3: ("intValue", lambda value: value - (value >> 63 << 64)),
    4: ("doubleValue", _double), 7: ("bytesValue", lambda value: b64encode(value).decode()),
}  # fmt: skip
_PAIRS = [{1: ("key", _text), 2: ("value", _ANY)}]
_ANY |= {5: ("arrayValue", {1: ("values", [_ANY])}), 6: ("kvlistValue", {1: ("values", _PAIRS)})}
_RESOURCE: Fields = {1: ("attributes", _PAIRS)}
_SPAN: Fields = {
    1: ("traceId", bytes.hex), 2: ("spanId", bytes.hex), 4: ("parentSpanId", bytes.hex),
    5: ("name", _text), 7: ("startTimeUnixNano", _fixed), 8: ("endTimeUnixNano", _fixed), 9: ("attributes", _PAIRS),
    11: ("events", [{2: ("name", _text), 3: ("attributes", _PAIRS)}]),
    15: ("status", {2: ("message", _text), 3: ("code", int)}),
}  # fmt: skip
_LOG: Fields = {
    1: ("timeUnixNano", _fixed), 6: ("attributes", _PAIRS), 9: ("traceId", bytes.hex),
    10: ("spanId", bytes.hex), 11: ("observedTimeUnixNano", _fixed), 12: ("eventName", _text),
}  # fmt: skip
