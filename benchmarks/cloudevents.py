"""Write events as a foreign client may, for tests and benchmarks: one after another and not masked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from fleetlore.wire.events import TYPES, Event


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


def encode_record(events: Iterable[Event]) -> bytes:
    """Value of one record that holds all `events`; send it with `BATCH_HEADERS`."""
    return orjson.dumps([to_cloudevent(event) for event in events])
