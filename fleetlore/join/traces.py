"""Hold OpenTelemetry spans until their trace has ended, and send it as a session."""

from __future__ import annotations

import time
from collections import OrderedDict

from fleetlore.agent.fleet import Fleet
from fleetlore.transcripts.otel_spans import Span, session_of
from fleetlore.transcripts.session import timed_events

__all__ = ["Traces"]

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
