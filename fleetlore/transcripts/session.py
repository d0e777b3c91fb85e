"""Collect a session of a foreign log, and turn it into events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from fleetlore.transcripts.calls import OpenCalls, json_or_text, verdict_of
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind

# Seconds between two events if the log has no times.
_TICK_SECONDS = 0.001
#: Errors that a log of another form raises.
MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)

_MAX_GOAL = 2_000
# Seconds to nanoseconds: until the year 5138 a time fits one unit.
_UNITS = (1.0, 1e3, 1e6, 1e9)
LATEST = 1e11
_MAY_BE_JSON = re.compile(r"\s*(?:[\[{\"\d-]|(?:true|false|null)\s*$)")
# Reasons why parts of a log become no event.
_NEVER_MADE, _NO_CALL, _OTHER_REASON = "call that was never made", "result without a call", "other parts"
SEEN = "call or message that another transcript holds"
# Anthropic's ids and long ones are unique in the world.
_UNIQUE, _UNIQUE_ID = "toolu_", 20
_MAX_REASONS = 32


@dataclass(slots=True)
class LoggedSession:
    """One logged session.

    Attributes:
        events: (kind, data) without start and end. `times` are theirs in seconds since the epoch, or empty.
        written: time of its file.
        unanswered: calls without a result.
        left_out: numbers of other parts that are no events, by reason.
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
    written: float = 0.0
    unanswered: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

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
        """Note how it ended: as the log says, or by a reward above one half."""
        self.reward = reward
        if succeeded is None and reward is not None:
            succeeded = reward > 0.5
        if succeeded is not None:
            self.outcome = "success" if succeeded else "failure"


class _Call(NamedTuple):
    """`key` is unique in the world."""

    tool: str
    arguments: object
    key: object = None


class Conversation:
    """Collects one session.

    Attributes:
        parts: texts that tell it from others of its `form`.
        goal: default: the first message of a person.
        seen: calls and messages of earlier sessions, which do not count again.
    """

    def __init__(
        self,
        form: str,
        *parts: str | bytes,
        agent: str = "",
        task: str = "",
        goal: str = "",
        conversation: str = "",
        seen: set[object] | None = None,
    ) -> None:
        id, most = _repeatable_id(form, *parts), ev.MAX_ID_LENGTH
        self.session = LoggedSession(id, agent or form, task, goal, source=form, conversation=conversation[:most])
        self._open = OpenCalls[_Call](self._leave)
        self._seen = seen
        # Calls of this session, and ids of calls in `seen`.
        self._made, self._history = set[object](), set[str]()
        self._ended: list[object] = []

    def say(self, role: str, text: str, time: float = 0.0) -> None:
        if text.strip():
            if role == "user":
                self.session.goal = self.session.goal or text[:_MAX_GOAL]
                self._open.end_turn()
            if self._seen is not None and time:
                if (role, time, text) in self._seen:
                    self.pass_over(SEEN)
                    return
                self._seen.add((role, time, text))
            self._add("message", {ev.ROLE: role, ev.CONTENT: text}, time)

    def call(self, id: str, tool: str, arguments: object, time: float = 0.0) -> None:
        # Raising an exception for each code or command takes a twentieth of an import.
        if isinstance(arguments, str) and _MAY_BE_JSON.match(arguments):
            arguments = json_or_text(arguments)
        key = None
        is_unique = id.startswith(_UNIQUE) or len(id) >= _UNIQUE_ID
        if self._seen is not None and (is_unique or time):
            from fleetlore.fingerprint.fingerprint import arguments_text  # imports numpy

            key = id, 0.0 if is_unique else time, tool, arguments_text(arguments)
            if key in self._seen or (is_unique and key in self._made):
                self._history.add(id)
                self.pass_over(SEEN)
                return
            self._made.add(key)
        self._open.add(id, tool, _Call(tool, arguments, key))

    def result(self, id: str, result: object, marked: bool | None = None, time: float = 0.0, tool: str = "") -> None:
        """Add a call's result, or count it as left out if the log lacks the call.

        Args:
            marked: whether the log marks it as failed, or None.
            tool: the tool that the result names, if any.
        """
        if id in self._history and id not in self._open:
            return
        called = self._open.pop(id, tool)
        verdict = verdict_of(result, marked)
        if called is None or not verdict.made:
            self.pass_over(_NO_CALL if called is None else _NEVER_MADE)
            return
        if called.key is not None:
            self._ended.append(called.key)
        data: dict[str, Any] = {ev.TOOL: ev.fitting_name(called.tool), ev.ARGUMENTS: called.arguments}
        if verdict.error is not None:
            data |= {ev.ERROR_TYPE: ev.OTHER_ERROR, ev.ERROR_MESSAGE: verdict.error}
        elif result is not None:
            data[ev.RESULT] = result
        self._add("outcome", data, time)

    def pass_over(self, reason: str) -> None:
        counted = self.session.left_out
        counted[reason if reason in counted or len(counted) < _MAX_REASONS else _OTHER_REASON] += 1

    def done(self) -> LoggedSession:
        self._open.close()
        if self._seen is not None:
            self._seen.update(self._ended)
        if not any(self.session.times):
            self.session.times = []
        return self.session

    def _leave(self, call: object) -> None:
        self.session.unanswered += 1

    def _add(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self.session.events.append((kind, data))
        self.session.times.append(time)


def seconds_of(time: object) -> float:
    """Return seconds since the Unix epoch, or 0 without a time. The default offset is UTC."""
    if isinstance(time, int | float) and abs(time) < LATEST * _UNITS[-1]:
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
    """Yield its events at the log's own times."""
    events = session.all_events()
    times = [0.0, *session.times, 0.0] if len(session.times) == len(session.events) else [0.0] * len(events)
    known = [time for time in times if time]
    agent = ev.fitting_name(session.agent, session.source or "unnamed")
    now = known[0] if known else end_time - _TICK_SECONDS * len(events)
    for sequence, ((kind, data), time) in enumerate(zip(events, times, strict=True)):
        now = max(now, time) if time else now + _TICK_SECONDS
        yield Event(kind, tenant, agent, session.session, sequence, now, data)


def _repeatable_id(form: str, *parts: str | bytes) -> str:
    """Return an equal id whenever the log is read."""
    digest = blake2b(digest_size=12)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\x1f")
    return f"{form}-{digest.hexdigest()}"
