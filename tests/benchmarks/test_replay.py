from typing import Any

import pytest

from benchmarks import replay
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.wire.events import RESULT, TOOL, Event


async def test_large_events_wait_for_room_too(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer is bounded in bytes as well, and full of large events long before it holds too many."""
    await make_topics(broker.address, tenant, "events", partitions=1)
    monkeypatch.setattr("fleetlore.kafka.emitter._MAX_WAITING_BYTES", 100_000)
    data = {TOOL: "sql", RESULT: "x" * 10_000}
    events = (Event("outcome", tenant, "agent", "s", number, 0.0, data) for number in range(50))
    assert await replay._send(events, Settings(broker=broker.address), tenant, 40.0) == 50
