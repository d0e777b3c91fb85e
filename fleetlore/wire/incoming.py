"""Say why a text or dictionary is no event, the same in workers and relays."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from fleetlore.errors import InvalidEvent
from fleetlore.wire import events as ev

_Name = Annotated[str, Meta(min_length=1, max_length=ev.MAX_ID_LENGTH)]

STARTED, ACTION, OUTCOME, MESSAGE, ENDED, FEEDBACK = ev.EventType


class Data(msgspec.Struct, kw_only=True, gc=False):
    tool: _Name | None = field(default=None, name=ev.TOOL)
    arguments: Any = field(default=None, name=ev.ARGUMENTS)
    result: Any = field(default=None, name=ev.RESULT)
    error_type: str | None = field(default=None, name=ev.ERROR_TYPE)
    error_message: str | None = field(default=None, name=ev.ERROR_MESSAGE)
    duration: Any = field(default=None, name=ev.DURATION)
    advice: Any = field(default=None, name=ev.ADVICE)
    adapter: Any = field(default=None, name=ev.ADAPTER)
    withheld: Any = field(default=None, name=ev.WITHHELD)
    goal: str | None = field(default=None, name=ev.GOAL)
    task: str | None = field(default=None, name=ev.TASK)
    place: str | None = field(default=None, name=ev.PLACE)
    user: str | None = field(default=None, name=ev.USER)
    outcome: ev.Outcome = field(default="unknown", name=ev.OUTCOME)
    reward: float | None = field(default=None, name=ev.REWARD)
    role: str | None = field(default=None, name=ev.ROLE)
    content: str | None = field(default=None, name=ev.CONTENT)
    guard: str | None = field(default=None, name=ev.VIOLATION)


class Incoming(msgspec.Struct, kw_only=True, gc=False):
    specversion: Literal["1.0"]
    type: ev.EventType
    agent: _Name
    session: _Name
    sequence: Annotated[int, Meta(ge=0, le=ev.MAX_SEQUENCE)]
    time: Annotated[datetime, Meta(tz=True)]
    data: Data
    tenant: str | UnsetType = UNSET


# Evidence is weighed by its age.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def latest_from(now: float) -> datetime:
    """Return the latest time of an event that came at `now`, in Unix seconds."""
    return datetime.fromtimestamp(max(0.0, min(now, _LATEST)) + ev.MAX_FUTURE_SECONDS, UTC)


def of_headers(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a CloudEvent in binary mode, whose values are texts."""
    sequence = attributes.get("sequence", "")
    # Python refuses to read thousands of digits.
    if sequence.isdecimal() and len(sequence) <= len(str(ev.MAX_SEQUENCE)):
        return attributes | {"sequence": int(sequence)}
    return attributes


def incoming(attributes: Mapping[str, Any], tenant: str, latest: datetime) -> Incoming:
    """Return the event of a decoded CloudEvent from a topic of `tenant`.

    Raises InvalidEvent: `wrong_shape`, `unknown_version`, `unknown_type`, `missing_field`, `bad_field`,
    `control_characters`, `foreign_tenant` or `future_time`.
    """
    try:
        event = msgspec.convert(attributes, Incoming)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    if (found := refusal(event, tenant, latest)) is not None:
        raise found
    return event


def refusal(event: Incoming, tenant: str, latest: datetime) -> InvalidEvent | None:
    """Return why an event breaks the rules that its type does not cover, or None."""
    kind, tool = event.type, event.data.tool
    if event.tenant is not UNSET and event.tenant != tenant:
        return InvalidEvent("foreign_tenant", f"the event claims tenant {event.tenant!r} on a topic of {tenant!r}")
    if not _EARLIEST <= event.time <= latest:
        if event.time > latest:
            return InvalidEvent("future_time", f"{event.time.isoformat()} is later than {latest.isoformat()}")
        return InvalidEvent("bad_field", f"{event.time.isoformat()} is before the year 1970")
    if tool is None and kind in (OUTCOME, ACTION):
        return InvalidEvent("missing_field", ev.TOOL)
    # The fast check refuses harmless characters, too, such as a no-break space.
    if not (event.agent.isprintable() and event.session.isprintable() and (tool is None or tool.isprintable())):
        for name in (event.agent, event.session, tool or ""):
            if ev.CONTROL.search(name):
                return InvalidEvent("control_characters", repr(name))
    return None


def invalid(error: msgspec.ValidationError) -> InvalidEvent:
    text = str(error)
    said, at, field = text.rpartition(" - at `$.")
    if not at:
        absent, version = field.startswith("Object missing"), "`specversion`" in field
        return InvalidEvent("wrong_shape" if not absent else "unknown_version" if version else "missing_field", text)
    field = field.removesuffix("`")
    if field == "specversion":
        return InvalidEvent("unknown_version", text)
    if field == "tenant":
        return InvalidEvent("foreign_tenant", text)
    if said.endswith("of length >= 1") or (said.endswith("got `null`") and "." not in field):
        return InvalidEvent("missing_field", text)
    if field != "type":
        return InvalidEvent("bad_field", text)
    stem = said.removeprefix("Invalid enum value '").rpartition(".")[0]
    known = any(stem == name.rpartition(".")[0] for name in ev.EventType)
    return InvalidEvent("unknown_version" if known else "unknown_type", text)
