"""Kafka records of events: one event, or a JSON array of them.

A stream processor pays per record, so the emitter puts many events of one partition into one record. CloudEvents' Kafka
binding has no batch mode; an array therefore has a content type of its own. Single events from any other client are read
in both modes of the binding: structured (the value is the whole event) and binary (attributes in `ce_` headers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from fleetlore.errors import InvalidEvent
from fleetlore.events import Event, to_cloudevent

MAX_EVENTS = 64
MAX_BYTES = 256 * 1024
MAX_EVENT_BYTES = 256 * 1024

CONTENT_TYPE = "content-type"
BATCH_TYPE = b"application/cloudevents-batch+json"
EVENT_TYPE = b"application/cloudevents+json"
BATCH_HEADERS = [(CONTENT_TYPE, BATCH_TYPE)]  # aiokafka takes a list and nothing else


def encode_record(events: Iterable[Event]) -> bytes:
    """Value of one record that holds all `events`; send it with `BATCH_HEADERS`."""
    return orjson.dumps([to_cloudevent(event) for event in events])


def decode_record(value: bytes | None, headers: Mapping[str, bytes] | None = None) -> list[object]:
    """The decoded events of a record, each still to be checked by `parse_event`.

    An element that is too large is replaced by an `InvalidEvent`, so that the events beside it are still read.

    Raises:
        InvalidEvent: `not_json` (the value as a whole cannot be read) or `empty`.
    """
    if not value:
        raise InvalidEvent("empty", "a record without a value")
    try:
        decoded = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if headers and "ce_specversion" in headers:
        decoded = _from_binary_mode(decoded, headers)
    events: list[object] = decoded if isinstance(decoded, list) else [decoded]
    # Only a record this large can hold an event that is; so the usual record pays nothing.
    if len(value) > MAX_EVENT_BYTES:
        return [_within_limit(event) for event in events]
    return events


def _within_limit(event: object) -> object:
    try:
        size = len(orjson.dumps(event))
    except orjson.JSONEncodeError as error:
        return InvalidEvent("bad_field", f"the event cannot be measured: {error}")
    if size > MAX_EVENT_BYTES:
        return InvalidEvent("too_large", f"{size} bytes; the limit is {MAX_EVENT_BYTES}")
    return event


def _from_binary_mode(data: object, headers: Mapping[str, bytes]) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        name[3:]: raw.decode("utf-8", "replace") for name, raw in headers.items() if name.startswith("ce_")
    }
    sequence = attributes.get("sequence")
    if isinstance(sequence, str) and sequence.isdecimal():
        attributes["sequence"] = int(sequence)
    return {**attributes, "data": data}
