"""Define events: what agents report, as CloudEvents 1.0 whose `data` uses OpenTelemetry's GenAI attribute names.

An event's id consists of tenant, agent, session and `sequence`, so a resent event has the same id.

- `session.started`: goal, task, place
- `action`: a tool call begins (optional; a `Fleet` sends none)
- `outcome`: a tool call ended
- `message`: the text of a person or the model between calls
- `session.ended`: success, failure or unknown, and a reward where the environment gave one
- `feedback`: a later correction, on a topic of its own; the agent is the one who gives it

A Kafka record is one event, or a JSON array of one partition's, because stream processors pay per record. CloudEvents'
Kafka binding has no batch mode, so arrays have another content type.
"""

import re
from enum import StrEnum
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from fleetlore.errors import ConfigError

Kind = Literal["session.started", "action", "outcome", "message", "session.ended", "feedback"]
Outcome = Literal["success", "failure", "unknown"]

TOOL = "gen_ai.tool.name"
ARGUMENTS = "gen_ai.tool.call.arguments"
CALL_ID = "gen_ai.tool.call.id"
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

MAX_EVENTS = 64
MAX_BYTES = 256 * 1024
MAX_EVENT_BYTES = 256 * 1024
CONTENT_TYPE = "content-type"
BATCH_TYPE = b"application/cloudevents-batch+json"
EVENT_TYPE = b"application/cloudevents+json"
BATCH_HEADERS = [(CONTENT_TYPE, BATCH_TYPE)]  # aiokafka takes only a list

# Error type of a call that broke a rule of the environment.
_GUARD_ERROR = "guard"
# OpenTelemetry's `error.type` where only a text is known.
OTHER_ERROR = "_OTHER"
MAX_RULE = 64


class EventType(StrEnum):
    STARTED = "ai.fleetlore.session.started.v1"
    ACTION = "ai.fleetlore.action.v1"
    OUTCOME = "ai.fleetlore.outcome.v1"
    MESSAGE = "ai.fleetlore.message.v1"
    ENDED = "ai.fleetlore.session.ended.v1"
    FEEDBACK = "ai.fleetlore.feedback.v1"


TYPES: dict[Kind, str] = {kind: each.value for kind, each in zip(get_args(Kind), EventType, strict=True)}
KINDS: dict[str, Kind] = {name: kind for kind, name in TYPES.items()}
#: Characters that no name has.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Event(NamedTuple):
    """One event. `time`: Unix seconds. `data`: the attribute names of this module to JSON values."""

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
    """Return 32 hex digits for the session, a hyphen and the sequence. Names have no such separator."""
    key = blake2b(f"{tenant}\x1f{agent}\x1f{session}".encode(), digest_size=16).hexdigest()
    return f"{key}-{sequence}"


def checked_name(what: str, name: str) -> str:
    """Return a name that every stage accepts. Raises ConfigError."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_LENGTH or CONTROL.search(name):
        raise ConfigError(f"{what} must be 1 to {MAX_ID_LENGTH} characters without control characters: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r} is not valid Unicode") from None
    return name


def fitting_name(name: str, default: str = "unnamed") -> str:
    if name and len(name) <= MAX_ID_LENGTH and name.isprintable():  # false for half a surrogate pair
        return name
    return CONTROL.sub(" ", name).encode("utf-8", "replace").decode()[:MAX_ID_LENGTH] or default


def finite(value: Any) -> float | None:
    """Return a reward or duration if it is a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def guarded(rule: str) -> tuple[str, str]:
    return _GUARD_ERROR, f"forbidden: {rule[:MAX_RULE]}"
