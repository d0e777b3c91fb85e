"""Define events: what agents say, as CloudEvents 1.0 whose `data` uses OpenTelemetry's GenAI attribute names.

An `execute_tool` span therefore converts to an `outcome` and back without renaming. Every event has a tenant, an agent,
a session and a `sequence` that grows by one within the session; its id is made of these four, so that an event sent
twice is the same event.

| kind | says |
| --- | --- |
| `session.started` | a session began: its goal, task, place |
| `action` | a tool call begins (optional; a `Fleet` sends none) |
| `outcome` | a tool call ended: tool, arguments, result or error, duration; advice given, withheld; adapter |
| `message` | what a person or the model said between calls |
| `session.ended` | success, failure or unknown, and a reward where the environment gave one |
| `feedback` | a later correction of the verdict, on a topic of its own; the agent is the one who gives it |

`fleetlore.wire.incoming` defines, as a type, which values are events.

A Kafka record is one event, or a JSON array of events of one partition, because a stream processor pays per record.
CloudEvents' Kafka binding has no batch mode; an array therefore has a content type of its own.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from fleetlore.errors import ConfigError

Kind = Literal["session.started", "action", "outcome", "message", "session.ended", "feedback"]
Outcome = Literal["success", "failure", "unknown"]

TOOL = "gen_ai.tool.name"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
ERROR_TYPE = "error.type"
ERROR_MESSAGE = "error.message"
DURATION = "fleetlore.duration_seconds"
ADVICE = "fleetlore.advice"
WITHHELD = "fleetlore.withheld"
ADAPTER = "fleetlore.adapter"
GOAL = "fleetlore.goal"
TASK = "fleetlore.task"
PLACE = "fleetlore.place"
# Hash of whom a session acts for (`user_hash`): enough to erase what a user asks to be erased.
USER = "fleetlore.user"
CONVERSATION = "gen_ai.conversation.id"
OUTCOME = "fleetlore.outcome"
REWARD = "fleetlore.reward"
VIOLATION = "fleetlore.guard"
ROLE = "fleetlore.role"
CONTENT = "fleetlore.content"

MAX_SEQUENCE = 1_000_000
MAX_ID_LENGTH = 256
MAX_FUTURE_SECONDS = 300.0

# Bounds of a record.
MAX_EVENTS = 64
MAX_BYTES = 256 * 1024
MAX_EVENT_BYTES = 256 * 1024
CONTENT_TYPE = "content-type"
BATCH_TYPE = b"application/cloudevents-batch+json"
EVENT_TYPE = b"application/cloudevents+json"
BATCH_HEADERS = [(CONTENT_TYPE, BATCH_TYPE)]  # aiokafka takes a list and nothing else

# Error type of a call that broke a rule of the environment, whatever the call returned.
_GUARD_ERROR = "guard"
# OpenTelemetry's `error.type` where only a text is known.
OTHER_ERROR = "_OTHER"
MAX_RULE = 64


class EventType(StrEnum):
    """The CloudEvents types, in the order of `Kind`."""

    STARTED = "ai.fleetlore.session.started.v1"
    ACTION = "ai.fleetlore.action.v1"
    OUTCOME = "ai.fleetlore.outcome.v1"
    MESSAGE = "ai.fleetlore.message.v1"
    ENDED = "ai.fleetlore.session.ended.v1"
    FEEDBACK = "ai.fleetlore.feedback.v1"


#: The CloudEvents type of each kind.
TYPES: dict[Kind, str] = {kind: each.value for kind, each in zip(get_args(Kind), EventType, strict=True)}
#: The kind of each CloudEvents type.
KINDS: dict[str, Kind] = {name: kind for kind, name in TYPES.items()}
#: Characters that no name has.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Event(NamedTuple):
    """One event.

    A named tuple is the cheapest immutable class, and tens of thousands a second are made.

    Attributes:
        time: in seconds since the Unix epoch.
        data: the attribute names of this module to JSON values.
    """

    kind: Kind
    tenant: str
    agent: str
    session: str
    sequence: int
    time: float
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return event_id(self.tenant, self.agent, self.session, self.sequence)


def event_id(tenant: str, agent: str, session: str, sequence: int) -> str:
    """32 hex digits for the session, a hyphen and the sequence."""
    return f"{_session_id(tenant, agent, session)}-{sequence}"


@lru_cache(maxsize=1024)
def _session_id(tenant: str, agent: str, session: str) -> str:
    """A hash of all three; the separator cannot occur in them, so different ones never give the same id."""
    return blake2b(f"{tenant}\x1f{agent}\x1f{session}".encode(), digest_size=16).hexdigest()


def checked_name(what: str, name: str) -> str:
    """A name that every stage accepts; refused here, where the mistake is, and not in the dead letters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_LENGTH or CONTROL.search(name):
        raise ConfigError(f"{what} must be 1 to {MAX_ID_LENGTH} characters without control characters: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r} is not valid Unicode") from None
    return name


def fitting_name(name: str, default: str = "unnamed") -> str:
    """A name made so that every stage accepts it: no control characters, not too long, never empty."""
    if name and len(name) <= MAX_ID_LENGTH and name.isprintable():  # nearly always; half a surrogate pair is not
        return name
    return CONTROL.sub(" ", name).encode("utf-8", "replace").decode()[:MAX_ID_LENGTH] or default


def finite(value: Any) -> float | None:
    """Return a reward or a duration as every stage accepts it: a finite number, or None for any other value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def guarded(rule: str) -> tuple[str, str]:
    """Error type and message of a call that broke a rule."""
    return _GUARD_ERROR, f"forbidden: {rule[:MAX_RULE]}"
