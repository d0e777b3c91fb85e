"""Hold OpenTelemetry spans until their trace has ended, and send it as a session."""

from __future__ import annotations

import time
import zlib
from collections import OrderedDict
from contextlib import suppress

from google.protobuf.message import DecodeError

from fleetlore.agent.fleet import Fleet
from fleetlore.errors import NotOpen
from fleetlore.transcripts.otel_spans import Span, evaluation_of, is_agent, session_of
from fleetlore.transcripts.session import timed_events

__all__ = ["MAX_BODY", "NO_OTLP", "Traces"]

#: Bytes of one export.
MAX_BODY = 16 * 1024 * 1024
_MAX_SPANS = 50_000
_MAX_CLOSED = 10_000
#: What reading an export raises where it is none; the last two of numbers and nesting that no exporter writes.
NO_OTLP = (
    ValueError, KeyError, TypeError, AttributeError, DecodeError, zlib.error, ArithmeticError, RecursionError,
)  # fmt: skip


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
        # Sessions by trace, with the ids of the spans that are the whole run: an evaluation of them may come later.
        self._closed: OrderedDict[str, tuple[str, frozenset[str]]] = OrderedDict()

    @property
    def full(self) -> bool:
        """Whether it takes nothing more now."""
        return self._held >= self._max_spans or self._fleet.emitter.full

    def add(self, span: Span) -> None:
        """Hold a span. One of a trace that was closed comes too late and is left out, unless it evaluates the run."""
        if span.trace in self._closed:
            session, runs = self._closed[span.trace]
            succeeded = evaluation_of(span, runs)
            if session and succeeded is not None:
                # The agent is over, too: nobody is there to whom it could be said.
                with suppress(NotOpen):
                    self._fleet.feedback(session, "success" if succeeded else "failure")
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
        session = session_of(spans)
        runs = frozenset(span.id for span in spans if is_agent(span))
        self._closed[trace] = ("" if session is None else session.session), runs
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)
        for event in () if session is None else timed_events(session, self._fleet.tenant, time.time()):
            self._fleet.emitter.emit(event)

    def close_silent(self, seconds: float) -> None:
        """Close the traces of which nothing came for so long."""
        limit = self._fleet.clock.monotonic() - seconds
        while self._spans and next(iter(self._spans.values()))[0] <= limit:
            self.close(next(iter(self._spans)))
