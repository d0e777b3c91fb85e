"""Hold one session as somebody else's log has it, and make the events that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind

__all__ = ["LoggedSession", "repeatable_id", "timed_events"]

# Between two events of which the log has no time.
_TICK_SECONDS = 0.001


@dataclass(slots=True)
class LoggedSession:
    """One session as it was logged.

    Attributes:
        events: (kind, data) in order, without its start and end.
        times: of the events, in seconds since the Unix epoch; empty where the log has none.
        source: where it was logged: a benchmark, a product, a team.
        place: where it acted: a database, a repository, a host; empty where the log does not say.
        conversation: that it is a part of; empty where the log does not say.
        unanswered: calls of which the log has no result; they are no events.
    """

    session: str
    agent: str
    task: str
    goal: str
    outcome: ev.Outcome = "unknown"
    reward: float | None = None
    events: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    source: str = ""
    place: str = ""
    conversation: str = ""
    unanswered: int = 0

    def all_events(self) -> list[tuple[Kind, dict[str, Any]]]:
        """Return its events with its start and end."""
        ended: dict[str, Any] = {ev.OUTCOME: self.outcome}
        if self.reward is not None:
            ended[ev.REWARD] = self.reward
        started: dict[str, Any] = {ev.GOAL: self.goal, ev.TASK: self.task}
        if self.place:
            started[ev.PLACE] = self.place
        if self.conversation:
            started[ev.CONVERSATION] = self.conversation
        return [("session.started", started), *self.events, ("session.ended", ended)]

    def end(self, reward: float | None, succeeded: bool | None = None) -> None:
        """Note how it ended: with a reward of which more than half is a success, or as the log says."""
        self.reward = reward
        if succeeded is None and reward is not None:
            succeeded = reward > 0.5
        if succeeded is not None:
            self.outcome = "success" if succeeded else "failure"


def timed_events(session: LoggedSession, tenant: str, end_time: float) -> Iterator[Event]:
    """Its events at the log's own times.

    Args:
        end_time: of its end, in seconds since the Unix epoch, where the log has no times.
    """
    events = session.all_events()
    times = [0.0, *session.times, 0.0] if len(session.times) == len(session.events) else [0.0] * len(events)
    known = [time for time in times if time]
    agent = ev.fitting_name(session.agent, session.source or "unnamed")
    now = known[0] if known else end_time - _TICK_SECONDS * len(events)
    for sequence, ((kind, data), time) in enumerate(zip(events, times, strict=True)):
        now = max(now, time) if time else now + _TICK_SECONDS
        yield Event(kind, tenant, agent, session.session, sequence, now, data)


def repeatable_id(form: str, *parts: str | bytes) -> str:
    """An id for a session of a log: the same whenever and wherever the log is read."""
    digest = blake2b(digest_size=12)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\x1f")
    return f"{form}-{digest.hexdigest()}"
