"""Following topics, where what is done with the records fails."""

import asyncio
import logging
from typing import Any

import pytest
from aiokafka import codec

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka import read
from fleetlore.kafka.read import Fetched, Follower, observer, read_to_end, record_at
from fleetlore.wire.topics import topic
from tests.doubles.raw_batches import Raw, batch, produce


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
    with caplog.at_level(logging.WARNING, "fleetlore.kafka.read"):
        following = asyncio.create_task(follower.run())
        try:
            async with asyncio.timeout(120):
                await enough.wait()
        finally:
            following.cancel()
            await asyncio.wait([following])
    assert len([line for line in caplog.messages if "lore cannot be followed" in line]) == 1
    assert times[4] - times[3] > 0.8  # the fourth pause: 0.1, 0.2, 0.4, 0.8


async def test_what_cannot_be_read_is_skipped_and_counted_and_the_follower_catches_up(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topics(broker.address, tenant, "patterns", partitions=1)
    name, odd = topic(tenant, "patterns"), Raw(b"{}", b"key", [(b"\xff", b"1")])
    await asyncio.to_thread(produce, broker.address, name, batch([Raw(b"1"), odd, Raw(b"2"), odd, odd]))
    found: list[bytes] = []

    async def take(fetched: Fetched) -> None:
        found.extend(record.value or b"" for records in fetched.values() for record in records)

    follower = Follower(broker.address, [name], take, what="lore", fetch_wait_ms=50, poll_ms=50)
    following = asyncio.create_task(follower.run())
    try:
        assert await follower.caught_up(120)
    finally:
        following.cancel()
        await asyncio.wait([following])
    assert (found, follower.skipped, follower.loaded) == ([b"1", b"2"], 3, True)
    assert [line for line in caplog.messages if f"{name}[0]@1 is skipped" in line and "2 more" in line]
    assert [each.value for each in await read_to_end(broker.address, [name], 120)] == [b"1", b"2"]
    async with observer(broker.address) as consumer:
        assert await record_at(consumer, name, 0, 1) is None
        third = await record_at(consumer, name, 0, 2)
        assert third is not None and third.value == b"2"


async def test_catching_up_waits_for_no_fetch_that_the_broker_holds(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers the requests of a connection one after the other, and a fetch may wait for seconds."""
    await make_topics(broker.address, tenant, "patterns", partitions=1)
    follower = Follower(broker.address, [topic(tenant, "patterns")], never, what="lore", fetch_wait_ms=50, poll_ms=50)
    following = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(120):
            while not follower.connected:
                await asyncio.sleep(0.01)

        async def held(consumer: Any) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr("fleetlore.kafka.read._ends", held)
        assert await follower.caught_up(120)
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_a_codec_that_is_not_installed_is_an_error_that_says_what_to_install(
    broker: EmbeddedBroker,
    tenant: str,
    make_topics: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await make_topics(broker.address, tenant, "patterns", partitions=1)
    await asyncio.to_thread(produce, broker.address, topic(tenant, "patterns"), batch([Raw(b"1")], "zstd"))
    monkeypatch.setattr(codec, "cramjam", None)
    reported = asyncio.Event()
    monkeypatch.setattr(read.log, "error", lambda *said: (log_error(*said), reported.set()))
    follower = Follower(broker.address, [topic(tenant, "patterns")], never, what="lore", fetch_wait_ms=50, poll_ms=50)
    following = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(120):
            await reported.wait()
    finally:
        following.cancel()
        await asyncio.wait([following])
    [said] = [line for line in caplog.messages if "zstd" in line]
    assert "pip install 'fleetlore[codecs]'" in said and topic(tenant, "patterns") in said
    assert not follower.loaded and not follower.skipped


log_error = read.log.error


async def never(fetched: Fetched) -> None:
    assert not any(fetched.values())
