"""Define events: what agents say, as CloudEvents 1.0 whose `data` uses OpenTelemetry's GenAI attribute names.

An `execute_tool` span therefore converts to an `outcome` and back without renaming. Every event has a tenant, an agent,
a session and a `sequence` that grows by one within the session; its id is made of these four, so that an event sent
twice is the same event.

| kind | says |
| --- | --- |
| `session.started` | a session began: its goal, task, place; of several attempts at one goal which one it is |
| `action` | a tool call is about to run (optional) |
| `outcome` | a tool call ended: tool, arguments, result or error, duration; advice given, withheld, cited; adapter |
| `message` | what a person or the model said between calls |
| `session.ended` | success, failure or unknown, and a reward where the environment gave one |
| `feedback` | a later correction of the verdict, on a topic of its own; the agent is the one who gives it |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from fleetlore.errors import ConfigError, InvalidEvent

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
CITED = "fleetlore.cited"
ADAPTER = "fleetlore.adapter"
GOAL = "fleetlore.goal"
TASK = "fleetlore.task"
PLACE = "fleetlore.place"
# Hash of whom a session acts for (`user_hash`): enough to erase what a user asks to be erased.
USER = "fleetlore.user"
# Of agents that learn from each other first; empty for those of no group.
AGENT_GROUP = "fleetlore.agent_group"
# Of what its model was given besides the goal (`fleetlore.wire.definitions`).
DEFINITIONS = "fleetlore.definitions"
CONVERSATION = "gen_ai.conversation.id"
ATTEMPT_GROUP = "fleetlore.attempt_group"
ATTEMPT = "fleetlore.attempt"
OUTCOME = "fleetlore.outcome"
REWARD = "fleetlore.reward"
VIOLATION = "fleetlore.guard"
ROLE = "fleetlore.role"
CONTENT = "fleetlore.content"

VERSION = "v1"
MAX_SEQUENCE = 1_000_000
MAX_ID_LENGTH = 256
MAX_FUTURE_SECONDS = 300.0

# What a call counts as that broke a rule which the environment guards, whatever it returned.
GUARD_ERROR = "guard"
# OpenTelemetry's `error.type` where only a text is known.
OTHER_ERROR = "_OTHER"
MAX_RULE = 64

_TYPE_PREFIX = "ai.fleetlore."
_TYPES: dict[str, Kind] = {f"{_TYPE_PREFIX}{kind}.{VERSION}": kind for kind in get_args(Kind)}
#: The CloudEvents type of each kind.
TYPES: dict[Kind, str] = {kind: name for name, kind in _TYPES.items()}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_OUTCOMES = frozenset(get_args(Outcome))


class Event(NamedTuple):
    """One event. A named tuple, because tens of thousands a second are made and it is the cheapest immutable class.

    Attributes:
        time: when it happened, in seconds since the Unix epoch.
        data: OpenTelemetry attribute names (the constants of this module) to JSON values.
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


def to_cloudevent(event: Event) -> dict[str, Any]:
    """The event as a CloudEvent in JSON format (structured mode)."""
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": f"/agents/{event.agent}",
        "tenant": event.tenant,
        "agent": event.agent,
        "session": event.session,
        "sequence": event.sequence,
        "type": TYPES[event.kind],
        "time": datetime.fromtimestamp(event.time, UTC).isoformat(),
        "data": event.data,
    }


def parse_event(raw: object, tenant: str, now: float) -> Event:
    """Check one decoded CloudEvent from a topic of `tenant`. Unknown attributes are ignored, so that writers may add
    some.

    Args:
        raw: what the JSON decoder gave.
        tenant: whose topic it lay on; it decides, whatever the event claims.
        now: when the broker took it, in seconds, to refuse events from the future (they would close other sessions as
            silent).

    Raises:
        InvalidEvent: with reason `wrong_shape`, `unknown_version`, `unknown_type`, `missing_field`, `bad_field`,
            `control_characters`, `foreign_tenant` or `future_time`.
    """
    if not isinstance(raw, dict):
        raise InvalidEvent("wrong_shape", f"an event is a JSON object, not {type(raw).__name__}")
    if raw.get("specversion") != "1.0":
        raise InvalidEvent("unknown_version", f"specversion {raw.get('specversion')!r} is not '1.0'")
    name = raw.get("type")
    # A list or an object cannot be looked up: it would raise TypeError, and so would every retry.
    kind = _TYPES.get(name) if type(name) is str else None
    if kind is None:
        raise _bad_type(name)
    claimed = raw.get("tenant", tenant)
    if claimed != tenant:
        raise InvalidEvent("foreign_tenant", f"the event claims tenant {claimed!r} on a topic of {tenant!r}")
    sequence = raw.get("sequence")
    if type(sequence) is not int:
        if sequence is None:
            raise InvalidEvent("missing_field", "sequence")
        raise InvalidEvent("bad_field", f"sequence {sequence!r} is not an integer")
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise InvalidEvent("bad_field", f"sequence {sequence} is not in 0..{MAX_SEQUENCE}")
    data = raw.get("data")
    if not isinstance(data, dict):
        raise InvalidEvent("missing_field" if data is None else "bad_field", "data must be a JSON object")
    time = _time(raw.get("time"), now)
    _check_data(kind, data)
    return Event(kind, tenant, _name(raw, "agent"), _name(raw, "session"), sequence, time, data)


def _bad_type(name: object) -> InvalidEvent:
    if name is None:
        return InvalidEvent("missing_field", "type")
    if isinstance(name, str) and name.rpartition(".")[0] in {known.rpartition(".")[0] for known in _TYPES}:
        return InvalidEvent("unknown_version", f"type {name!r}; this reader knows version {VERSION}")
    return InvalidEvent("unknown_type", f"type {name!r}")


def _name(raw: Mapping[str, Any], field: str) -> str:
    value = raw.get(field)
    if type(value) is not str or not value:
        raise InvalidEvent("missing_field" if value in (None, "") else "bad_field", field)
    if len(value) > MAX_ID_LENGTH:
        raise InvalidEvent("bad_field", f"{field} is longer than {MAX_ID_LENGTH} characters")
    # isprintable is a fast first look; it also refuses harmless characters such as a no-break space.
    if not value.isprintable() and _CONTROL.search(value):
        raise InvalidEvent("control_characters", field)
    return value


def _time(value: object, now: float) -> float:
    if type(value) is not str:
        raise InvalidEvent("missing_field" if value is None else "bad_field", "time must be an RFC 3339 string")
    try:
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None:
            raise ValueError("no offset from UTC")
        time = parsed.timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidEvent("bad_field", f"time {value[:64]!r}: {error}") from None
    if time > now + MAX_FUTURE_SECONDS:
        raise InvalidEvent("future_time", f"{value} is {time - now:.0f} s ahead")
    return time


def checked_name(what: str, name: str) -> str:
    """A name that every stage accepts; refused here, where the mistake is, and not in the dead letters.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_LENGTH or _CONTROL.search(name):
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
    return _CONTROL.sub(" ", name).encode("utf-8", "replace").decode()[:MAX_ID_LENGTH] or default


def fitting_reward(reward: float | None) -> float | None:
    """A reward as every stage accepts it: a finite number; None where it is none."""
    try:
        number = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def guarded(rule: str) -> tuple[str, str]:
    """Error type and message of a call that broke a rule."""
    return GUARD_ERROR, f"forbidden: {rule[:MAX_RULE]}"


def _check_data(kind: Kind, data: Mapping[str, Any]) -> None:
    """What the stages rely on, whatever the kind; all else in `data` is the sender's own."""
    if kind == "outcome" or kind == "action" or data.get(TOOL) is not None:
        _name(data, TOOL)
    for field in (ERROR_TYPE, ERROR_MESSAGE, GOAL, TASK, ROLE, CONTENT, VIOLATION):
        value = data.get(field)
        if value is not None and type(value) is not str:
            raise InvalidEvent("bad_field", f"{field} must be a string")
    outcome = data.get(OUTCOME, "unknown")
    if type(outcome) is not str or outcome not in _OUTCOMES:
        raise InvalidEvent("bad_field", f"{OUTCOME} {outcome!r} is not one of {', '.join(sorted(_OUTCOMES))}")
    reward = data.get(REWARD)
    if reward is not None and type(reward) not in (int, float):
        raise InvalidEvent("bad_field", f"{REWARD} must be a number")
