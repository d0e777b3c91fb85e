"""Send logged sessions to a broker as if their agents had, at the times of the log, and say what was found in them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetlore.emit.emitter import Emitter
from fleetlore.emit.encode import Encoded, encode, mask, masks_of
from fleetlore.transcripts.session import LoggedSession, timed_events
from fleetlore.wire import events as ev
from fleetlore.wire.events import MAX_EVENTS, Event

__all__ = ["Found", "send"]

_FULL_SECONDS = 0.005


@dataclass(slots=True)
class Found:
    """What was found in logs.

    Attributes:
        events: with the starts and ends of the sessions.
        unanswered: calls without a result in the log; nothing is known of how they ended.
        unreadable: lines, samples and files that hold no session.
        outcomes: of the sessions.
        masked: secrets by kind; of what is sent only the emitter knows them.
        first, last: times of the events, in seconds since the Unix epoch; 0 where there are none.
    """

    sessions: int = 0
    events: int = 0
    calls: int = 0
    failed: int = 0
    messages: int = 0
    unanswered: int = 0
    unreadable: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    first: float = 0.0
    last: float = 0.0

    def add(self, session: LoggedSession, events: list[Event]) -> None:
        self.sessions += 1
        self.events += len(events)
        self.unanswered += session.unanswered
        self.outcomes[session.outcome] += 1
        for event in events:
            self.calls += event.kind == "outcome"
            self.failed += event.kind == "outcome" and ev.ERROR_MESSAGE in event.data
            self.messages += event.kind == "message"
        self.first = min(self.first or events[0].time, events[0].time)
        self.last = max(self.last, events[-1].time)

    def merge(self, other: Found) -> None:
        for name in ("sessions", "events", "calls", "failed", "messages", "unanswered", "unreadable"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.outcomes += other.outcomes
        self.masked += other.masked
        self.first = min(self.first or other.first, other.first or self.first)
        self.last = max(self.last, other.last)


async def send(
    sessions: Iterable[LoggedSession | None],
    emitter: Emitter | None,
    tenant: str,
    *,
    end_time: float,
    agent: str | None = None,
    task: str | None = None,
) -> Found:
    """Read and send sessions one after another; never more of them in memory than the emitter's buffer holds.

    Args:
        emitter: started, and used for nothing else; None only to look.
        end_time: of sessions whose log has no times, in seconds since the Unix epoch.
        agent, task: in place of what the log says.
    """
    found = Found()
    looked_at: list[Encoded] = []
    for session in sessions:
        if session is None:
            found.unreadable += 1
            continue
        session.agent, session.task = agent or session.agent, task or session.task
        events = list(timed_events(session, tenant, end_time))
        found.add(session, events)
        if emitter is None:
            looked_at += map(encode, events)
            if len(looked_at) >= MAX_EVENTS:
                found.masked += masks_of(looked_at, mask(looked_at))
                looked_at.clear()
            continue
        for event in events:
            while emitter.full:
                await asyncio.sleep(_FULL_SECONDS)
            emitter.emit(event)
        await asyncio.sleep(0)  # let what is full be sent
    found.masked += masks_of(looked_at, mask(looked_at))
    return found
