"""Hold one session as somebody else's log has it, collect it call by call, and make the events that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson

from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind

# Between two events of which the log has no time.
_TICK_SECONDS = 0.001
#: What reading a log raises that is not of its form: no JSON, or JSON of another shape.
MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError)

_MAX_GOAL = 2_000
# Seconds, milliseconds, microseconds, nanoseconds: a time of today is in one of them before the year 5138.
_UNITS = (1.0, 1e3, 1e6, 1e9)
LATEST = 1e11
# An error is known by how it begins: this many characters of a result are looked at.
_BEGINNING = 2_000
_MAY_BE_JSON = re.compile(r"\s*(?:[\[{\"\d-]|(?:true|false|null)\s*$)")
_FAILED = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|An error occurred while running the tool\b|Error\b|ERROR\b"
    r"|(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)\b[:(]"
    r"|\S*sh: (?:line \d+: )?\S+: (?:command not found|No such file or directory|Permission denied))"
)


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


class Conversation:
    """Collects one session.

    Args:
        form: of the log.
        parts: what tells the session from others of the form.
        goal: the first that a person says, unless it is known beforehand.
    """

    def __init__(
        self, form: str, *parts: str | bytes, agent: str = "", task: str = "", goal: str = "", conversation: str = ""
    ) -> None:
        id, most = repeatable_id(form, *parts), ev.MAX_ID_LENGTH
        self.session = LoggedSession(id, agent or form, task, goal, source=form, conversation=conversation[:most])
        self._open: dict[str, tuple[str, object]] = {}

    def say(self, role: str, text: str, time: float = 0.0) -> None:
        """A message; the empty one is none."""
        if text.strip():
            if role == "user" and not self.session.goal:
                self.session.goal = text[:_MAX_GOAL]
            self._add("message", {ev.ROLE: role, ev.CONTENT: text}, time)

    def call(self, id: str, tool: str, arguments: object) -> None:
        """A call is made; arguments in JSON text are parsed."""
        # Code and commands are texts of their own; an exception for each would be a twentieth of an import.
        if isinstance(arguments, str) and _MAY_BE_JSON.match(arguments):
            arguments = json_or_text(arguments)
        self._open[id] = tool, arguments

    def result(self, id: str, result: object, failed: bool | None = None, time: float = 0.0) -> None:
        """A call's result. Of a call that the log does not have it is left out.

        Args:
            failed: None where the log does not say; its text decides then.
        """
        called = self._open.pop(id, None)
        if called is None:
            return
        tool, arguments = called
        data: dict[str, Any] = {ev.TOOL: ev.fitting_name(tool), ev.ARGUMENTS: arguments}
        if says_failure(result) if failed is None else failed:
            said = result if isinstance(result, str) else orjson.dumps(result, default=str).decode()
            data |= {ev.ERROR_TYPE: ev.OTHER_ERROR, ev.ERROR_MESSAGE: said}
        elif result is not None:
            data[ev.RESULT] = result
        self._add("outcome", data, time)

    def unknown(self, id: str) -> None:
        """A call that was put off or refused by a person: how it would have ended is not known."""
        self._open.pop(id, None)

    def done(self) -> LoggedSession:
        self.session.unanswered = len(self._open)
        if not any(self.session.times):
            self.session.times = []
        return self.session

    def _add(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self.session.events.append((kind, data))
        self.session.times.append(time)


def says_failure(result: object) -> bool:
    """Whether a result that nobody marked as one is an error: by how it begins, so that a page about errors is none."""
    if isinstance(result, dict):
        return bool(result.get("error") or result.get("is_error") or result.get("isError"))
    if not isinstance(result, str):
        return False
    if result[:1] == "{" and '"error"' in result[:200]:
        try:
            return says_failure(orjson.loads(result))
        except orjson.JSONDecodeError:
            return False
    return _FAILED.match(result, 0, _BEGINNING) is not None


def json_or_text(value: object) -> Any:
    """What JSON in a text says; the value where it is none."""
    if isinstance(value, str):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(value)
    return value


def text_of_content(content: object) -> str:
    """The text of a message's content: a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def seconds_of(time: object) -> float:
    """A time of a log, in seconds since the Unix epoch; 0 where it has none. One without an offset is UTC."""
    if isinstance(time, int | float):
        return next((time / unit for unit in _UNITS if 0 <= time / unit < LATEST), 0.0)
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return 0.0
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return seconds if 0 <= seconds < LATEST else 0.0
    return 0.0


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
