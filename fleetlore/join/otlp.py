"""Receive OTLP over HTTP, hold spans until their trace ends, and send it as a session.

Without room the exporter is asked to send again, by 429 and Retry-After.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fleetlore.agent.fleet import Fleet
from fleetlore.errors import ModelUnavailable, NotOpen
from fleetlore.limits import bounded, refused
from fleetlore.transcripts.session import MALFORMED, timed_events
from fleetlore.transcripts.spans import Span, evaluation_of, is_agent, session_of, spans_of
from fleetlore.wire.decode import ENCODINGS, encoding_of, unpacked
from fleetlore.wire.events import Event

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["MAX_SPANS", "OTLP_PATHS", "Traces", "closing_silent", "receiving_app", "take_export"]

OTLP_PATHS = ("/v1/traces", "/v1/logs")

_MAX_BODY = 16 * 1024 * 1024
MAX_SPANS = 50_000
# Bytes of a place of `MAX_SPANS`: at most 100 MB are held.
_PLACE_BYTES = 2_000
_PLACE_ATTRIBUTES = 16
_MAX_RUNS = 16
_MAX_CLOSED = 10_000
_SPANS_AT_ONCE = 256
# Spans of a trace come children first, in batches of some seconds.
_SILENT_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5
_FORMS = ("application/x-protobuf", "application/json")
_SHOWN = 200


# Reading 16 MiB takes seconds and up to .45 GB: one export at a time, of all agents.
_READER = ThreadPoolExecutor(1, "otlp")


class Traces:
    """Spans under way, by trace. `reviewer`: makes the fleet that sends an agent's late evaluations."""

    def __init__(
        self,
        fleet: Fleet,
        agent: str = "",
        *,
        max_spans: int = MAX_SPANS,
        reviewer: Callable[[str], Fleet] | None = None,
    ) -> None:
        self._fleet, self._agent = fleet, agent
        self._reviewer = reviewer or (lambda _: fleet)
        self._max_spans = max_spans
        self._held = 0
        # By trace, the longest silent first: time of the newest span, spans, places.
        self._spans: OrderedDict[str, tuple[float, list[Span], int]] = OrderedDict()
        # By trace, for a later evaluation: agent, session, and ids of its runs' spans.
        self._closed: OrderedDict[str, tuple[str, str, frozenset[str]]] = OrderedDict()

    def refuses(self) -> bool:
        if self._held < self._max_spans and not self._fleet.emitter.full:
            return False
        refused("buffer_full", "an export of spans is to be sent again later")
        return True

    def add(self, span: Span, places: int = 1) -> None:
        """Hold a span. After its trace was closed only an evaluation counts."""
        if span.trace in self._closed:
            agent, session, runs = self._closed[span.trace]
            succeeded = evaluation_of(span, runs)
            if session and succeeded is not None:
                with suppress(NotOpen):
                    self._reviewer(agent).feedback(session, "success" if succeeded else "failure")
            else:
                refused("late_span", f"a span of trace {span.trace[:32]!r} came after the trace was closed")
            return
        _, spans, before = self._spans.pop(span.trace, (0.0, [], 0))
        spans.append(span)
        self._spans[span.trace] = self._fleet.clock.monotonic(), spans, before + places
        self._held += places

    async def take(self, body: bytes, form: str, *, logs: bool) -> list[ValueError]:
        """Hold the spans of an export. Return the errors of malformed ones."""
        read = partial(_read, body, form, logs=logs)
        spans = await asyncio.get_running_loop().run_in_executor(_READER, read)
        if len(spans) > MAX_SPANS:
            raise ValueError(f"an export of more than {MAX_SPANS} spans")
        malformed, places = [], 1 + len(body) // max(1, len(spans)) // _PLACE_BYTES
        for number, span in enumerate(spans):
            if number % _SPANS_AT_ONCE == _SPANS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if isinstance(span, Span):
                names = len(span.attributes) + sum(1 + len(each) for _, each in span.events)
                self.add(span, places + names // _PLACE_ATTRIBUTES)
            else:
                refused("malformed_span", str(span))
                malformed.append(span)
        return malformed

    def close(self, trace: str) -> None:
        for event in self._events_of(trace):
            self._fleet.emitter.emit(event)

    def close_silent(self, seconds: float) -> Iterator[None]:
        """Close the traces that are silent for so long. It yields often, so that others can run meanwhile."""
        limit = self._fleet.clock.monotonic() - seconds
        while self._spans and next(iter(self._spans.values()))[0] <= limit:
            for number, event in enumerate(self._events_of(next(iter(self._spans)))):
                self._fleet.emitter.emit(event)
                if number % _SPANS_AT_ONCE == _SPANS_AT_ONCE - 1:
                    yield
            yield

    def _events_of(self, trace: str) -> Iterator[Event]:
        _, spans, places = self._spans.pop(trace, (0.0, [], 0))
        if not spans:
            return
        self._held -= places
        try:
            session = session_of(spans)
            if session is not None and self._agent:
                session = replace(session, agent=self._agent)
        except MALFORMED as error:
            refused("unreadable_trace", f"trace {trace[:32]!r} with {len(spans)} spans is left out: {error!r}")
            session = None
        runs = frozenset(islice((span.id for span in spans if is_agent(span)), _MAX_RUNS))
        self._closed[trace] = *(("", "") if session is None else (session.agent, session.session)), runs
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)
        if session is not None:
            left_out = session.left_out + Counter({"call without a result": session.unanswered})
            for reason, count in left_out.items():
                refused("part_of_trace", f"trace {trace[:32]!r}: left out {count} times: {reason}")
            now = time.time()
            yield from timed_events(session, self._fleet.tenant, now, now)


def _read(body: bytes, form: str, *, logs: bool) -> list[Span | ValueError]:
    return list(islice(spans_of(body, form, logs=logs), MAX_SPANS + 1))


def receiving_app(traces: Traces) -> Starlette:
    """Serve `OTLP_PATHS`. Enter the fleet before it runs."""
    from starlette.applications import Starlette  # absent in an agent's process
    from starlette.routing import Route

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with closing_silent(lambda: [traces]):
            yield

    routes = [Route(path, partial(take_export, traces), methods=["POST"]) for path in OTLP_PATHS]
    return Starlette(routes=routes, lifespan=lifespan)


@asynccontextmanager
async def closing_silent(every: Callable[[], Iterable[Traces]]) -> AsyncIterator[None]:
    async def close_silent() -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await close(_SILENT_SECONDS)

    async def close(seconds: float) -> None:
        for each in every():
            for _ in each.close_silent(seconds):
                await asyncio.sleep(0)

    closing = asyncio.create_task(close_silent())
    yield
    closing.cancel()
    await asyncio.wait([closing])
    await close(0.0)


async def take_export(traces: Traces, request: Request) -> Response:
    from starlette.responses import Response

    if traces.refuses():
        return Response("the buffer is full", 429, {"Retry-After": str(_RETRY_SECONDS)})
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form not in _FORMS:
        refused("unknown_form", form[:_SHOWN])
        return Response(f"the content type {form!r} is not read: send {' or '.join(_FORMS)}", 415)
    logs = request.url.path == "/v1/logs"
    encoding = encoding_of(request.headers)
    if encoding not in ENCODINGS:
        refused("unknown_encoding", encoding[:_SHOWN])
        return Response(f"the encoding {encoding!r} is not read: send gzip, zstd, deflate or none", 415)
    try:
        body = await bounded(request.stream(), _MAX_BODY)
        if body is None or len(body := unpacked(body, encoding, _MAX_BODY)) > _MAX_BODY:
            refused("too_large", "an export has too many bytes")
            return Response(f"more than {_MAX_BODY} bytes", 413)
        malformed = await traces.take(body, form, logs=logs)
    except (ValueError, RecursionError) as error:
        refused("no_otlp", str(error))
        return Response(f"no OTLP: {error}", 400)
    except ModelUnavailable as error:
        return Response(str(error), 415)
    return Response(_answer(malformed, form, logs=logs), media_type=form)


def _answer(malformed: list[ValueError], form: str, *, logs: bool) -> bytes:
    if not malformed:
        return b"{}" if form == "application/json" else b""
    why = str(malformed[0])[:_SHOWN]
    if form == "application/json":
        rejected = "rejectedLogRecords" if logs else "rejectedSpans"
        return msgspec.json.encode({"partialSuccess": {rejected: str(len(malformed)), "errorMessage": why}})
    # Its fields in protobuf: 1, the number, and 2, the text.
    said = b"\x08" + _varint(len(malformed)) + b"\x12" + _sized(why.encode())
    return b"\x0a" + _sized(said)


def _sized(message: bytes) -> bytes:
    return _varint(len(message)) + message


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
