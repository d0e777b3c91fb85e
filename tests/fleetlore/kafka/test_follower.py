"""Following topics, where what is done with the records fails."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.topics import topic


async def test_a_record_that_nobody_can_take_is_said_once_and_comes_again_ever_later(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topics(broker.address, tenant, "patterns", partitions=1)
    times: list[float] = []
    enough = asyncio.Event()

    async def take(fetched: Fetched) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 5:
            enough.set()
        raise RuntimeError("not this one")

    follower = Follower(broker.address, [topic(tenant, "patterns")], take, what="lore", fetch_wait_ms=50, poll_ms=50)
    with caplog.at_level(logging.WARNING, "fleetlore.kafka.follower"):
        following = asyncio.create_task(follower.run())
        try:
            async with asyncio.timeout(60):
                await enough.wait()
        finally:
            following.cancel()
            await asyncio.wait([following])
    assert len([line for line in caplog.messages if "lore cannot be followed" in line]) == 1
    assert times[4] - times[3] > 0.8  # the fourth pause: 0.1, 0.2, 0.4, 0.8
