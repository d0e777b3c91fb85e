"""Join agents that are traced with OpenTelemetry.

provider.add_span_processor(FleetSpanProcessor(fleet))  # of agents that are not recorded in another way
show_advice(fleet)  # of those that are
show_metrics()  # of every agent of the process
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, TracerProvider, get_current_span, get_tracer

from fleetlore.advice.advice import Advice
from fleetlore.agent.fleet import Fleet, metrics
from fleetlore.join.otlp import Traces
from fleetlore.transcripts.spans import MEMORY_STORE, OURS, Span
from fleetlore.wire import events

__all__ = ["FleetSpanProcessor", "show_advice", "show_metrics"]

SESSION, RISK = "fleetlore.session", "fleetlore.risk"


class FleetSpanProcessor(SpanProcessor):
    """Sends each trace as a session when its root ends. For any thread."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._traces = Traces(fleet)

    def on_end(self, span: ReadableSpan) -> None:
        if self._fleet.is_forked:
            return
        with self._fleet.lock, self._fleet.guard:
            if not self._traces.refuses():
                self._traces.add(_span(span))
            if span.parent is None and span.context is not None:
                self._traces.close(f"{span.context.trace_id:032x}")

    def shutdown(self) -> None:
        if self._fleet.is_forked:
            return
        with self._fleet.lock:
            for _ in self._traces.close_silent(0.0):
                pass


def show_advice(fleet: Fleet, provider: TracerProvider | None = None) -> None:
    """Put advice on the span in which a session asks: `fleetlore.session`, `fleetlore.advice`, `fleetlore.withheld`
    (ids) and `fleetlore.risk` (0..1), and below it a span `search_memory` for what was found.
    """
    tracer = get_tracer("fleetlore", tracer_provider=provider)

    def show(session: str, advice: Advice) -> None:
        span = get_current_span()
        if not span.is_recording():
            return
        known = getattr(span, "attributes", None) or {}
        found = {name: ids for name, ids in ((events.ADVICE, advice.ids), (events.WITHHELD, advice.withheld)) if ids}
        span.set_attribute(SESSION, session)
        for name, ids in found.items():
            span.set_attribute(name, list(dict.fromkeys((*known.get(name, ()), *ids))))
        if advice.risk is not None:
            span.set_attribute(RISK, advice.risk)
        if found:
            about: dict[str, Any] = {"gen_ai.operation.name": "search_memory", MEMORY_STORE: OURS}
            about |= {name: list(ids) for name, ids in found.items()}
            # The text may hold what a trace must not.
            tracer.start_span(f"search_memory {OURS}", kind=SpanKind.CLIENT, attributes=about).end()

    fleet.on_advice.append(show)


def show_metrics(provider: MeterProvider | None = None) -> None:
    """Give a meter the figures of `fleetlore.metrics()` as `fleetlore.NAME`: `…_total` are counters, others gauges."""
    meter = get_meter("fleetlore", meter_provider=provider)
    for name in metrics():
        create = meter.create_observable_counter if name.endswith("_total") else meter.create_observable_gauge
        create(f"fleetlore.{name}", [partial(_observed, name)])


def _observed(name: str, _: CallbackOptions) -> Iterable[Observation]:
    return [Observation(metrics()[name])]


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
