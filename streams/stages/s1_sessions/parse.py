"""Read events: the bytes of a record become checked structs in one pass.

`fleetlore.wire.events.parse_event` says what an event is and why something is none. It takes an event at a time, as a
dictionary. Here the same is said as a type, and a record that is wholly good, as nearly all are, is decoded and checked
by msgspec at once, which is four times faster. Where anything is wrong the record is read again, event by event, so
that the bad ones get their reason and the good ones beside them are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from fleetlore.errors import InvalidEvent
from fleetlore.wire import events as ev
from fleetlore.wire.events import MAX_FUTURE_SECONDS, parse_event
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
            latest = datetime.fromtimestamp(min(record.time, _LATEST) + MAX_FUTURE_SECONDS, UTC)
            if all(_sound(event, tenant, latest) for event in events):
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


def _sound(event: Incoming, tenant: str, latest: datetime) -> bool:
    """What the type does not say."""
    kind, tool = event.type, event.data.tool
    return (
        (event.tenant is UNSET or event.tenant == tenant)
        and event.time <= latest
        and (tool is not None or (kind != OUTCOME and kind != ACTION))
        # A fast first look; it also refuses harmless characters such as a no-break space, which the second look takes.
        and event.agent.isprintable()
        and event.session.isprintable()
        and (tool is None or tool.isprintable())
    )


def _read_carefully(record: Record, tenant: str, effects: Effects) -> list[Incoming]:
    good: list[Incoming] = []
    try:
        parts = list(_parts(record))
    except InvalidEvent as error:
        effects.dead_letters.append(dead_letter(record, error))
        return good
    for part, event in parts:
        try:
            good.append(_checked(event, part, tenant, record.time))
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


def _checked(event: object, part: bytes, tenant: str, now: float) -> Incoming:
    if len(part) > MAX_EVENT_BYTES:
        raise InvalidEvent("too_large", f"{len(part)} bytes; the limit is {MAX_EVENT_BYTES}")
    raw = _json(part) if event is None else event
    parse_event(raw, tenant, now)
    try:
        return msgspec.convert(raw, Incoming)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidEvent("bad_field", str(error)) from None


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
