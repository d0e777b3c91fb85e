"""Identify the sender of a request, parse its CloudEvents, and keep the session of each remote agent."""

from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fleetlore.agent.action import Action
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.config import DEFAULT_TENANT, check_tenant
from fleetlore.errors import ConfigError, InvalidEvent
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.limits import Shares
from fleetlore.redact.values import MAX_CHARACTERS, fitting, weight
from fleetlore.transcripts.calls import OpenCalls
from fleetlore.wire import events as names
from fleetlore.wire.decode import incoming, latest_from, of_headers, read_json
from fleetlore.wire.events import KINDS, MAX_ID_LENGTH, Event, checked_name

__all__ = ["read_tokens"]

_AGENT, _TENANT, _TOKEN = "fleetlore-agent", "fleetlore-tenant", "fleetlore-token"
OWN_HEADERS = "fleetlore-"
_LEAST_TOKEN = 16
_OPERATOR = "operator"
_UNNAMED = "agent"
_HEADER = "ce-"
NUMBERLESS = -1


class Caller(NamedTuple):
    """The caller of a request. `sure`: a token proves who it is. `operator`: it may decide what agents are shown."""

    tenant: str
    agent: str
    sure: bool = False
    operator: bool = False

    @property
    def share(self) -> tuple[str, str]:
        return self.tenant, self.agent


# By sha256 of the token, against timing attacks.
Tokens = Mapping[bytes, Caller]


def read_tokens(path: Path) -> Tokens:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tokens in {path} cannot be read: {error}") from None
    tokens: dict[bytes, Caller] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not 2 <= len(words) <= 4 or words[3:] not in ([], [_OPERATOR]) or len(words[0]) < _LEAST_TOKEN:
            wanted = f"a token of at least {_LEAST_TOKEN} characters, an agent, a tenant and at most `{_OPERATOR}`"
            raise ConfigError(f"{path}, line {number}: give {wanted}")
        key = _hashed(words[0])
        if key in tokens:
            raise ConfigError(f"{path}, line {number}: the token stands there twice; each is one agent's")
        tenant = check_tenant(words[2] if len(words) > 2 else DEFAULT_TENANT)
        tokens[key] = Caller(tenant, checked_name("agent", words[1]), sure=True, operator=len(words) == 4)
    if not tokens:
        raise ConfigError(f"{path} holds no token")
    return tokens


def caller_of(request: Request, tokens: Tokens | None, *, bearer: bool = True) -> Caller:
    """`bearer`: accept `Authorization`, which at the gateway is the provider's.

    Raises HTTPException: 401, 403 for another agent or tenant than the token's, 400.
    """
    headers = request.headers
    named, tenant = request.path_params.get("agent") or in_utf8(headers, _AGENT), headers.get(_TENANT, "")
    if tokens is None:
        try:
            return Caller(check_tenant(tenant or DEFAULT_TENANT), checked_name("agent", named or _UNNAMED))
        except ConfigError as error:
            raise HTTPException(400, str(error)) from None
    caller = tokens.get(_hashed(token_of(headers, bearer=bearer)))
    if caller is None:
        raise HTTPException(401, "give a token in Fleetlore-Token", {"www-authenticate": "Bearer"})
    if named not in ("", caller.agent) or tenant not in ("", caller.tenant):
        raise HTTPException(403, f"the token is of agent {caller.agent} of tenant {caller.tenant}")
    return caller


def in_utf8(headers: Headers, name: str) -> str:
    """A header as its sender wrote it, whose bytes Starlette reads as Latin-1."""
    given = headers.get(name, "")
    with suppress(UnicodeError):
        return given.encode("latin-1").decode()
    return given


def token_of(headers: Headers, *, bearer: bool = True) -> str:
    return headers.get(_TOKEN) or (headers.get("authorization", "").removeprefix("Bearer ") if bearer else "")


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def events_of(headers: Mapping[str, str], body: bytes, caller: Caller, now: float) -> list[Event]:
    try:
        found = read_json(body)
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if f"{_HEADER}specversion" in headers:
        attributes = {
            name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
        }
        found = of_headers(attributes) | {"data": found}
    return [_event(each, caller, now) for each in (found if isinstance(found, list) else [found])]


def _event(raw: Any, caller: Caller, now: float) -> Event:
    if not isinstance(raw, dict):
        raise InvalidEvent("wrong_shape", f"an event is a JSON object, not {type(raw).__name__}")
    whole: dict[str, Any] = {"agent": caller.agent, "time": datetime.fromtimestamp(now, UTC).isoformat(), "sequence": 0}
    whole |= {name: value for name, value in raw.items() if value is not None}
    found = incoming(whole, caller.tenant, latest_from(now))
    if caller.sure and found.agent != caller.agent:
        raise InvalidEvent("foreign_agent", f"the token is of agent {caller.agent}, the event of {found.agent}")
    sequence = NUMBERLESS if raw.get("sequence") is None else found.sequence
    time = found.time.timestamp()
    data = fitting(whole["data"])
    return Event(KINDS[found.type], caller.tenant, found.agent, found.session, sequence, time, data)


# Evicted sessions get advice as if new.
MAX_SESSIONS = 10_000
_MAX_BEGUN = 1024
# An object of an event or call beside its texts.
_ENTRY_BYTES = 512


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
        """Agents choose ids and may repeat a session's start."""


class _RemoteSession:
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

    @property
    def size(self) -> int:
        """Characters of the texts that it keeps, from above, and bytes of their objects."""
        return self.session.size + self._begun.size + _ENTRY_BYTES * (1 + len(self._seen))

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
        if not self._sent and not self._emitter.emit(event):
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
            # The id is kept too.
            self._begun.add(_key(data), data[names.TOOL], action, _ENTRY_BYTES + 2 * weight(data, MAX_CHARACTERS))
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
    return str(data.get(names.CALL_ID) or "")[:MAX_ID_LENGTH]


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
