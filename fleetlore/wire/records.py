"""Put events into Kafka records: one event, or a JSON array of them.

A stream processor pays per record, so the emitter puts many events of one partition into one record. CloudEvents' Kafka
binding has no batch mode; an array therefore has a content type of its own. How the pipeline reads them, and single
events from any other client, is in `streams.stages.s1_sessions.parse`.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from fleetlore.wire.events import Event, to_cloudevent

__all__ = ["BATCH_HEADERS", "BATCH_TYPE", "EVENT_TYPE", "MAX_BYTES", "MAX_EVENTS", "MAX_EVENT_BYTES"]

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
