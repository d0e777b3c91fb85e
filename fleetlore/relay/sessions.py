"""Keep the session of each remote agent."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from fleetlore.agent.action import Action
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.relay.requests import Caller
from fleetlore.shares import Shares
from fleetlore.transcripts.calls import OpenCalls
from fleetlore.wire import events as names
from fleetlore.wire.events import Event

__all__ = ["BufferFull", "Member", "RemoteSessions"]

CALL_ID = "gen_ai.tool.call.id"
# In memory. Evicted sessions get advice as if new.
MAX_SESSIONS = 10_000
_MAX_BEGUN = 1024


class BufferFull(Exception):
    """The buffer is full: send this event again."""


class Member(Fleet):
    """One of many agents that share a fleet's senders, lore and lock."""

    def __init__(self, fleet: Fleet, agent: str, emitter: Any = None) -> None:
        self.__dict__.update(vars(fleet))
        self.agent = agent
        if emitter is not None:
            self.emitter = emitter
        # The relay may not grant the right to overrule rewards.
        self.reviews = fleet.emitter

    def begin_session(self, session_id: str) -> None:
        """Ignore ids: agents choose them and may repeat a session's start."""


class _RemoteSession:
    """A remote session, and the emitter of its inner session, whose version of each event it sends."""

    def __init__(self, fleet: Fleet, agent: str, id: str, goal: str = "", task: str = "", place: str = "") -> None:
        self.next: int | None = None
        self.is_over = False
        self._id = id
        self._emitter = fleet.emitter
        self._member = Member(fleet, agent, self)
        self._all_before = 0  # all smaller ones were processed
        self._seen: set[int] = set()  # processed from there on
        self._given: Event | None = None
        self._sent = False
        self._begun = OpenCalls[Action](Action.abandon, _MAX_BEGUN)
        self.session = self._begin(goal, task, place)

    def take(self, event: Event) -> bool:
        if event.sequence < self._all_before or event.sequence in self._seen:
            return False
        if self._emitter.full:
            raise BufferFull
        self._given, self._sent = event, False
        try:
            self._record(event.kind, event.data)
        finally:
            self._given = None
        if not self._sent and not self._emitter.emit(event):  # no event from the inner session
            raise BufferFull
        self._seen.add(event.sequence)
        while self._all_before in self._seen:
            self._seen.remove(self._all_before)
            self._all_before += 1
        self.next = max(self.next or 0, event.sequence + 1)
        return True

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        """Send the inner session's version of the current event only."""
        given = self._given
        if given is None or event.kind != given.kind:
            return True
        data = given.data | event.data
        if names.DURATION in given.data:
            data[names.DURATION] = given.data[names.DURATION]
        self._sent = self._emitter.emit(given._replace(data=data), at_once=at_once)
        return self._sent

    def _begin(self, goal: str, task: str, place: str) -> Session:
        session = self._member.session(goal, task, self._id, place=place)
        return copy_context().run(session.__enter__)  # not the current session here

    def _record(self, kind: names.Kind, data: dict[str, Any]) -> None:
        session = self.session
        if kind == "session.started":
            about = (str(data.get(name) or "") for name in (names.GOAL, names.TASK, names.PLACE))
            self.session = self._begin(*about)
        elif kind == "action":
            action = session.begin(data[names.TOOL], data.get(names.ARGUMENTS), call_id=_call_id(data))
            self._begun.add(_key(data), data[names.TOOL], action)
            # The inner session sends no event, and its quotes of advice are no evidence here.
            if self._given is not None:
                self.emit(self._given._replace(data={names.ARGUMENTS: action.recorded}))
        elif kind == "outcome":
            self._end(data)
        elif kind == "message":
            session.message(data.get(names.ROLE) or "", data.get(names.CONTENT) or "")
        elif kind == "session.ended":
            outcome, reward = data.get(names.OUTCOME), data.get(names.REWARD)
            if outcome in ("success", "failure"):
                (session.succeed if outcome == "success" else session.fail)(reward)
            session.__exit__(None, None, None)
            self.is_over = True

    def _end(self, data: dict[str, Any]) -> None:
        action, seconds = self._begun.pop(_key(data)), None
        if action is None:
            seconds = 0.0
            action = self.session.begin(data[names.TOOL], data.get(names.ARGUMENTS), call_id=_call_id(data))
        if rule := data.get(names.VIOLATION):
            action.forbid(rule)
        error = data.get(names.ERROR_TYPE), data.get(names.ERROR_MESSAGE)
        if error != (None, None):
            action.fail(error[0] or "", error[1] or "")
        action.end(data.get(names.RESULT), duration_seconds=seconds)


def _call_id(data: dict[str, Any]) -> str:
    return str(data.get(CALL_ID) or "")


def _key(data: dict[str, Any]) -> str:
    return f"{data[names.TOOL]}\x1f{_call_id(data) or arguments_text(data.get(names.ARGUMENTS))}"


class RemoteSessions(Shares[tuple[str, str, str], _RemoteSession]):
    def __init__(self) -> None:
        super().__init__(MAX_SESSIONS, "sessions")

    def open(self, fleet: Fleet, caller: Caller, agent: str, id: str, **about: str) -> _RemoteSession:
        key = fleet.tenant, agent, id
        session = self.get(key)
        if session is None:
            session = _RemoteSession(fleet, agent, id, **about)
            self.put(caller.share, key, session)
        return session

    def next_number(self, key: tuple[str, str, str]) -> int | None:
        session = self.get(key)
        return session.next if session is not None else None
