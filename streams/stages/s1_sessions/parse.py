"""Read events: the bytes of a record become checked structs in one pass.

What an event is, is said once, as a type. A record that is wholly good, as nearly all are, is decoded and checked by
msgspec at once. Where anything is wrong the record is read again, event by event, so that the bad ones get their reason
and the good ones beside them are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from fleetlore.errors import InvalidEvent
from fleetlore.wire import events as ev
from fleetlore.wire.records import MAX_EVENT_BYTES
from fleetlore.wire.trajectory import Feedback
from streams.stage.base import Effects, Record, dead_letter, split

Name = Annotated[str, Meta(min_length=1, max_length=ev.MAX_ID_LENGTH)]

STARTED: Final = "ai.fleetlore.session.started.v1"
ACTION: Final = "ai.fleetlore.action.v1"
OUTCOME: Final = "ai.fleetlore.outcome.v1"
MESSAGE: Final = "ai.fleetlore.message.v1"
ENDED: Final = "ai.fleetlore.session.ended.v1"
FEEDBACK: Final = "ai.fleetlore.feedback.v1"


class Data(msgspec.Struct, kw_only=True, gc=False):
    """What the stages read of an event's `data`; the names are those of `fleetlore.wire.events`."""

    tool: Name | None = field(default=None, name=ev.TOOL)
    arguments: Any = field(default=None, name=ev.ARGUMENTS)
    result: Any = field(default=None, name=ev.RESULT)
    error_type: str | None = field(default=None, name=ev.ERROR_TYPE)
    error_message: str | None = field(default=None, name=ev.ERROR_MESSAGE)
    duration: Any = field(default=None, name=ev.DURATION)
    advice: Any = field(default=None, name=ev.ADVICE)
    adapter: Any = field(default=None, name=ev.ADAPTER)
    withheld: Any = field(default=None, name=ev.WITHHELD)
    cited: Any = field(default=None, name=ev.CITED)
    group: Any = field(default=None, name=ev.ATTEMPT_GROUP)
    goal: str | None = field(default=None, name=ev.GOAL)
    task: str | None = field(default=None, name=ev.TASK)
    place: str | None = field(default=None, name=ev.PLACE)
    user: str | None = field(default=None, name=ev.USER)
    agent_group: str | None = field(default=None, name=ev.AGENT_GROUP)
    definitions: str | None = field(default=None, name=ev.DEFINITIONS)
    outcome: ev.Outcome = field(default="unknown", name=ev.OUTCOME)
    reward: float | None = field(default=None, name=ev.REWARD)
    role: str | None = field(default=None, name=ev.ROLE)
    content: str | None = field(default=None, name=ev.CONTENT)
    guard: str | None = field(default=None, name=ev.VIOLATION)


class Incoming(msgspec.Struct, kw_only=True, gc=False):
    """One event as it came in."""

    specversion: Literal["1.0"]
    type: Literal[
        "ai.fleetlore.session.started.v1",
        "ai.fleetlore.action.v1",
        "ai.fleetlore.outcome.v1",
        "ai.fleetlore.message.v1",
        "ai.fleetlore.session.ended.v1",
        "ai.fleetlore.feedback.v1",
    ]
    agent: Name
    session: Name
    sequence: Annotated[int, Meta(ge=0, le=ev.MAX_SEQUENCE)]
    time: Annotated[datetime, Meta(tz=True)]
    data: Data
    tenant: str | UnsetType = UNSET


_read_all = msgspec.json.Decoder(list[Incoming]).decode
_read_one = msgspec.json.Decoder(Incoming).decode
_read_any = msgspec.json.Decoder().decode

# Of a record: no event can be later than the year 9999.
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_BAD_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def read_events(record: Record, tenant: str, effects: Effects) -> list[Incoming]:
    """The good events of a record from a topic of `tenant`; the bad ones become dead letters.

    Events later than the record's own time are refused: a worker's clock says nothing of it, so each worker, and each
    replay, takes the same ones.
    """
    value = record.value or b""
    if len(value) <= MAX_EVENT_BYTES and not record.headers.get("ce_specversion"):
        try:
            events = _read_all(value) if value[:1] == b"[" else [_read_one(value)]
        except _BAD_JSON:
            pass
        else:
            latest = _latest(record)
            if all(_refusal(event, tenant, latest) is None for event in events):
                effects.processed += len(events)
                return events
    return _read_carefully(record, tenant, effects)


def bytes_of(event: Incoming, record: Record) -> bytes:
    """The untouched bytes of an event of a record."""
    for part, _ in _parts(record):
        try:
            found = _read_one(part)
        except _BAD_JSON:
            continue
        if (found.session, found.sequence, found.agent) == (event.session, event.sequence, event.agent):
            return part
    return record.value or b""


def feedback_of(event: Incoming, *, claimed: bool) -> Feedback | None:
    """The correction that an event of feedback makes; None where it says nothing."""
    label = event.data.outcome
    if label == "unknown":
        return None
    return Feedback(session=event.session, label=label, time=event.time.timestamp(), by=event.agent, claimed=claimed)


def _refusal(event: Incoming, tenant: str, latest: datetime) -> InvalidEvent | None:
    """What the type does not say: why it is none of `tenant`, or of now; None where it is good."""
    kind, tool = event.type, event.data.tool
    if event.tenant is not UNSET and event.tenant != tenant:
        return InvalidEvent("foreign_tenant", f"the event claims tenant {event.tenant!r} on a topic of {tenant!r}")
    if event.time > latest:
        return InvalidEvent("future_time", f"{event.time.isoformat()} is later than {latest.isoformat()}")
    if tool is None and kind in (OUTCOME, ACTION):
        return InvalidEvent("missing_field", ev.TOOL)
    # A fast first look; it also refuses harmless characters such as a no-break space, which the second look takes.
    if not (event.agent.isprintable() and event.session.isprintable() and (tool is None or tool.isprintable())):
        for name in (event.agent, event.session, tool or ""):
            if ev.CONTROL.search(name):
                return InvalidEvent("control_characters", repr(name))
    return None


def _invalid(error: msgspec.ValidationError) -> InvalidEvent:
    """What the type does not take, with the reason that its dead letter gets."""
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
    known = any(stem == name.rpartition(".")[0] for name in ev.TYPES.values())
    return InvalidEvent("unknown_version" if known else "unknown_type", text)


def _latest(record: Record) -> datetime:
    """The latest time that an event of a record may have."""
    return datetime.fromtimestamp(min(record.time, _LATEST) + ev.MAX_FUTURE_SECONDS, UTC)


def _read_carefully(record: Record, tenant: str, effects: Effects) -> list[Incoming]:
    good: list[Incoming] = []
    latest = _latest(record)
    try:
        parts = list(_parts(record))
    except InvalidEvent as error:
        effects.dead_letters.append(dead_letter(record, error))
        return good
    for part, attributes in parts:
        try:
            good.append(_checked(attributes, part, tenant, latest))
        except InvalidEvent as error:
            effects.dead_letters.append(dead_letter(record, error, None if len(parts) == 1 else part))
    effects.processed += len(good)
    return good


def _parts(record: Record) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Bytes of each event; and the event itself where its attributes lie in the headers."""
    value = record.value or b""
    if record.headers.get("ce_specversion"):
        yield value, {**_attributes(record.headers), "data": _json(value)}
        return
    for part in split(value):
        yield part, None


def _checked(attributes: dict[str, Any] | None, part: bytes, tenant: str, latest: datetime) -> Incoming:
    if len(part) > MAX_EVENT_BYTES:
        raise InvalidEvent("too_large", f"{len(part)} bytes; the limit is {MAX_EVENT_BYTES}")
    try:
        event = _read_one(part) if attributes is None else msgspec.convert(attributes, Incoming)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except _BAD_JSON as error:
        raise InvalidEvent("not_json", str(error)) from None
    if (refusal := _refusal(event, tenant, latest)) is not None:
        raise refusal
    return event


def _json(value: bytes) -> Any:
    try:
        return _read_any(value)
    except _BAD_JSON as error:
        raise InvalidEvent("not_json", str(error)) from None


def _attributes(headers: Mapping[str, bytes]) -> dict[str, Any]:
    """CloudEvents' binary mode: attributes in `ce_` headers, `data` in the value."""
    attributes: dict[str, Any] = {
        name[3:]: raw.decode("utf-8", "replace") for name, raw in headers.items() if name.startswith("ce_")
    }
    sequence = attributes.get("sequence")
    if isinstance(sequence, str) and sequence.isdecimal():
        attributes["sequence"] = int(sequence)
    return attributes
