"""Join agents that are traced with OpenTelemetry: their spans become sessions, or say what advice they had.

    provider.add_span_processor(FleetSpanProcessor(fleet))

is for agents that are not recorded in another way: a call that a decorator or a hook records too would count twice.

    show_advice(fleet)

is for those that are: their own spans then tell Langfuse, Phoenix and others what the fleet said.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode, get_current_span

from fleetlore.agent.blocking import BlockingFleet
from fleetlore.agent.fleet import Fleet
from fleetlore.join.otel_spans import Span, session_of
from fleetlore.recall.advice import Advice
from fleetlore.transcripts.session import timed_events
from fleetlore.wire import events

__all__ = ["FleetSpanProcessor", "Traces", "show_advice"]

SESSION, RISK = "fleetlore.session", "fleetlore.risk"

_MAX_SPANS = 50_000
_MAX_CLOSED = 10_000


class Traces:
    """Spans under way, by trace. Children end before their root, and come in any order.

    Args:
        max_spans: how many are held; what comes beyond them is to be sent again later.
    """

    def __init__(self, fleet: Fleet, *, max_spans: int = _MAX_SPANS) -> None:
        self._fleet = fleet
        self._max_spans = max_spans
        self._held = 0
        self._spans: OrderedDict[str, tuple[float, list[Span]]] = OrderedDict()  # the longest silent first
        self._closed: OrderedDict[str, None] = OrderedDict()

    @property
    def full(self) -> bool:
        """Whether it takes nothing more now."""
        return self._held >= self._max_spans or self._fleet.emitter.full

    def add(self, span: Span) -> None:
        """Hold a span. One of a trace that was closed comes too late and is left out."""
        if span.trace in self._closed:
            return
        _, spans = self._spans.pop(span.trace, (0.0, []))
        spans.append(span)
        self._spans[span.trace] = self._fleet.clock.monotonic(), spans
        self._held += 1

    def close(self, trace: str) -> None:
        """Send what is known of a trace."""
        _, spans = self._spans.pop(trace, (0.0, []))
        if not spans:
            return
        self._held -= len(spans)
        self._closed[trace] = None
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)
        session = session_of(spans)
        for event in () if session is None else timed_events(session, self._fleet.tenant, time.time()):
            self._fleet.emitter.emit(event)

    def close_silent(self, seconds: float) -> None:
        """Close the traces of which nothing came for so long."""
        limit = self._fleet.clock.monotonic() - seconds
        while self._spans and next(iter(self._spans.values()))[0] <= limit:
            self.close(next(iter(self._spans)))


class FleetSpanProcessor(SpanProcessor):
    """Sends each trace as a session when its root ends. For any thread."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._traces = Traces(fleet)

    def on_end(self, span: ReadableSpan) -> None:
        with self._fleet.lock:
            if not self._traces.full:
                self._traces.add(_span(span))
            if span.parent is None and span.context is not None:
                self._traces.close(f"{span.context.trace_id:032x}")

    def shutdown(self) -> None:
        with self._fleet.lock:
            self._traces.close_silent(0.0)


def show_advice(fleet: Fleet | BlockingFleet) -> None:
    """Put what a session is told on the span in which it asks: `fleetlore.session`, `fleetlore.advice` and
    `fleetlore.withheld` (ids, those of all that it asked in that span), `fleetlore.risk` (0..1, of the call that was
    asked about last). For an entered fleet.
    """
    fleet.on_advice.append(_show)


def _show(session: str, advice: Advice) -> None:
    span = get_current_span()
    if not span.is_recording():
        return
    known = getattr(span, "attributes", None) or {}
    span.set_attribute(SESSION, session)
    for name, ids in ((events.ADVICE, advice.ids), (events.WITHHELD, advice.withheld)):
        if ids:
            span.set_attribute(name, list(dict.fromkeys((*known.get(name, ()), *ids))))
    if advice.risk is not None:
        span.set_attribute(RISK, advice.risk)


def _span(span: ReadableSpan) -> Span:
    assert span.context is not None
    attributes: dict[str, Any] = {**span.resource.attributes, **(span.attributes or {})}
    return Span(
        span.name,
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
        "" if span.parent is None else f"{span.parent.span_id:016x}",
        (span.start_time or 0) / 1e9,
        (span.end_time or 0) / 1e9,
        attributes,
        span.status.status_code is StatusCode.ERROR,
        span.status.description or "",
        [(event.name, dict(event.attributes or {})) for event in span.events],
    )
