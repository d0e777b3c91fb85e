"""Read one event as the stages do, for tests of what agents write."""

import json
from math import inf
from typing import Any

from fleetlore.errors import InvalidEvent
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.events import KINDS, Event
from fleetlore.wire.topics import topic
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events


async def sent(address: str, tenant: str = "default") -> list[dict[str, Any]]:
    """Return all events of a tenant so far, in the order of the log."""
    found: list[dict[str, Any]] = []
    for record in await read_to_end(address, [topic(tenant, "events")], 120):
        value = json.loads(record.value or b"[]")
        found += value if isinstance(value, list) else [value]
    return found


def read_back(raw: object, tenant: str, now: float = inf) -> Event:
    """The event of a decoded CloudEvent. Raises InvalidEvent for a dead letter. `now`: when the broker takes it."""
    effects = Effects()
    value = json.dumps([raw]).encode()
    good = read_events(Record(topic(tenant, "events"), 0, 0, None, value, {}, now), effects)
    for letter in effects.dead_letters:
        raise InvalidEvent(letter.reason, letter.detail)
    [event] = good
    assert isinstance(raw, dict)
    kind, time = KINDS[event.type], event.time.timestamp()
    return Event(kind, tenant, event.agent, event.session, event.sequence, time, raw["data"])
