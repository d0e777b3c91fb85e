"""Read events: the bytes of a record become checked structs in one pass.

msgspec decodes a wholly good record, as nearly all are, at once. Another one is read event by event, so that each bad
event gets its reason and the good ones are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from fleetlore.errors import InvalidEvent
from fleetlore.wire.decode import json_reader, mended_json, read_json
from fleetlore.wire.events import MAX_EVENT_BYTES
from fleetlore.wire.incoming import Incoming, incoming, invalid, latest_from, of_headers, refusal
from fleetlore.wire.principals import ANYONE, Principals, principal_of
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Feedback
from streams.stage.base import Effects, Record, dead_letter, split

_read_all = json_reader(list[Incoming])
_read_one = json_reader(Incoming)


def read_events(record: Record, effects: Effects, principals: Principals | None = None) -> list[Incoming]:
    """Return the good events of a record. Bad ones, and unsigned ones if there are `principals`, become dead letters.

    Events later than the record's broker time are refused. No worker's clock is asked, so each replay takes the same
    ones.
    """
    value, tenant, principal = record.value or b"", tenant_of(record.topic), ANYONE
    if principals is not None:
        try:
            principal = principals.signed_by(record.headers, record.topic, value)
        except Exception as error:
            effects.dead_letters.append(dead_letter(record, error))
            return []
    if len(value) <= MAX_EVENT_BYTES and not record.headers.get("ce_specversion"):
        with suppress(Exception):  # found again below, with its reason
            events, latest = _read_all(value) if value[:1] == b"[" else [_read_one(value)], latest_from(record.time)
            if all(refusal(event, tenant, latest) is None for event in events) and (
                principal == ANYONE or all(principal_of(event.agent) == principal for event in events)
            ):
                effects.processed += len(events)
                return events
    return _read_carefully(record, tenant, principal, effects)


def bytes_of(event: Incoming, record: Record) -> bytes:
    for part, _ in _parts(record):
        try:
            found = _read_one(part)
        except msgspec.DecodeError:
            continue
        if (found.session, found.sequence, found.agent) == (event.session, event.sequence, event.agent):
            return part
    return record.value or b""


def feedback_of(event: Incoming, *, claimed: bool) -> Feedback | None:
    label = event.data.outcome
    if label == "unknown":
        return None
    return Feedback(session=event.session, label=label, time=event.time.timestamp(), by=event.agent, claimed=claimed)


def _read_carefully(record: Record, tenant: str, principal: str, effects: Effects) -> list[Incoming]:
    good: list[Incoming] = []
    try:
        latest, parts = latest_from(record.time), list(_parts(record))
    except Exception as error:
        effects.dead_letters.append(dead_letter(record, error))
        return good
    for part, attributes in parts:
        try:
            event = _checked(attributes, part, tenant, latest)
            if principal not in (ANYONE, principal_of(event.agent)):
                raise InvalidEvent("foreign_principal", f"{principal!r} signed it, and is not agent {event.agent!r}")
            good.append(event)
        except Exception as error:
            effects.dead_letters.append(dead_letter(record, error, None if len(parts) == 1 else part))
    effects.processed += len(good)
    return good


def _parts(record: Record) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Bytes of each event; and the event itself where its attributes lie in the headers."""
    value = record.value or b""
    if record.headers.get("ce_specversion"):
        yield value, {**_attributes(record.headers), "data": _json(value)}
        return
    for part in split(mended_json(value)):
        yield part, None


def _checked(attributes: dict[str, Any] | None, part: bytes, tenant: str, latest: datetime) -> Incoming:
    if len(part) > MAX_EVENT_BYTES:
        raise InvalidEvent("too_large", f"{len(part)} bytes; the limit is {MAX_EVENT_BYTES}")
    if attributes is not None:
        return incoming(attributes, tenant, latest)
    try:
        event = _read_one(part)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if (reason := refusal(event, tenant, latest)) is not None:
        raise reason
    return event


def _json(value: bytes) -> Any:
    try:
        return read_json(value)
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None


def _attributes(headers: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Read the attributes of CloudEvents' binary mode from `ce_` headers."""
    given = {name[3:]: raw for name, raw in headers.items() if raw is not None and name.startswith("ce_")}
    return of_headers({name: raw.decode("utf-8", "replace") for name, raw in given.items()})
