"""Read CloudEvents out of an HTTP request: structured, binary or a batch, with what a caller may leave out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import orjson

from fleetlore.errors import InvalidEvent
from fleetlore.relay.callers import Caller
from fleetlore.wire.events import KINDS, Event
from fleetlore.wire.incoming import incoming, latest_from

__all__ = ["NUMBERLESS", "events_of"]

_HEADER = "ce-"
# Stands for the number of an event that its sender did not number.
NUMBERLESS = -1


def events_of(headers: Mapping[str, str], body: bytes, caller: Caller, now: float) -> list[Event]:
    """The events of a request, in order; their sequence is `NUMBERLESS` where it was left out.

    Raises:
        InvalidEvent: one of them is malformed; `foreign_agent` where it names another agent than the token does.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if f"{_HEADER}specversion" in headers:
        attributes: dict[str, Any] = {
            name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
        }
        if str(attributes.get("sequence", "")).isdecimal():
            attributes["sequence"] = int(attributes["sequence"])
        found = attributes | {"data": found}
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
    return Event(KINDS[found.type], caller.tenant, found.agent, found.session, sequence, time, whole["data"])
