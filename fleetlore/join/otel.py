"""Join agents that are traced with OpenTelemetry: their spans become sessions, or say what advice they had.

provider.add_span_processor(FleetSpanProcessor(fleet))  # of agents that are not recorded in another way
show_advice(fleet)  # of those that are
"""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode, get_current_span

from fleetlore.advice.advice import Advice
from fleetlore.agent.blocking import BlockingFleet
from fleetlore.agent.fleet import Fleet
from fleetlore.join.traces import Traces
from fleetlore.transcripts.otel_spans import Span
from fleetlore.wire import events

__all__ = ["FleetSpanProcessor", "show_advice"]

SESSION, RISK = "fleetlore.session", "fleetlore.risk"


class FleetSpanProcessor(SpanProcessor):
    """Sends each trace as a session when its root ends. For any thread.

    A call that a decorator or a hook records too would count twice.
    """

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
        span.status.status_code is StatusCode.OK,
        span.status.description or "",
        [(event.name, dict(event.attributes or {})) for event in span.events],
    )
