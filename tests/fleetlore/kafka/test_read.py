"""Reading topics to their end, on the embedded broker."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, codec

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka import read
from fleetlore.kafka.read import (
    Fetched,
    Follower,
    observer,
    partitions_of,
    read_dead_letters,
    read_to_end,
    record_at,
    records_of,
)
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, mark
from fleetlore.wire.topics import topic
from streams.embedded.broker import free_port
from tests.build import letter
from tests.doubles.raw_batches import Raw, batch, produce
from tests.waiting import until


async def test_all_records_are_read_in_order_within_a_partition(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events", "patterns", partitions=2)
    names = [topic(tenant, name) for name in ("events", "patterns")]
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        # Several records in one batch: tansu names an end that is too small there.
        for number in range(40):
            await producer.send(names[number % 2], b"%d" % number, partition=number // 2 % 2)
    records = await read_to_end(broker.address, names, 120)
    assert sorted(int(record.value) for record in records) == list(range(40))
    for place in {(record.topic, record.partition) for record in records}:
        offsets = [record.offset for record in records if (record.topic, record.partition) == place]
        assert offsets == sorted(offsets)


async def test_a_broker_that_goes_away_while_a_topic_is_read_is_said(
    own_broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export, an erasure and a distrust hung for as long as it was away."""
    own_broker.start()
    await make_topics(own_broker.address, tenant, "events", partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=own_broker.address) as producer:
        for _ in range(40):
            await producer.send_and_wait(topic(tenant, "events"), b"x" * 200_000)
    came, now = 0, 0.0

    def monotonic() -> float:
        nonlocal now
        now += 40.0 if came else 0.0
        return now

    monkeypatch.setattr(read, "time", SimpleNamespace(monotonic=monotonic))
    async with asyncio.timeout(240):
        with pytest.raises(BrokerUnavailable, match="gave no more records"):
            async for _ in records_of(own_broker.address, topic(tenant, "events")):
                came += 1
                if came == 1:
                    own_broker.kill()
    assert 0 < came < 40


async def test_a_broker_that_hangs_does_not_use_up_the_whole_budget_of_a_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read._REQUEST_MS < 10_000, "the shortest budget of a caller is 20 s, and it asks twice"
    monkeypatch.setattr(read, "_REQUEST_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"127.0.0.1:{hanging.getsockname()[1]}"
        async with asyncio.timeout(120):
            with pytest.raises(BrokerUnavailable):
                async with observer(address):
                    pass


MakeTopics = Callable[..., Awaitable[None]]


async def test_all_letters_and_marks_are_read_in_order_and_nothing_else(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics
) -> None:
    await make_topics(broker.address, tenant, "dead-letters", partitions=2)
    name = topic(tenant, "dead-letters")
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(30):
            posted = letter(to=name, topic=topic(tenant, "events"), partition=number % 2, offset=number)
            await producer.send_and_wait(name, posted.value, partition=number % 2, headers=posted.headers)
        await producer.send_and_wait(name, b"somebody else's", partition=0)
        read = [each async for each in read_dead_letters(broker.address, tenant, 10)]
        assert isinstance(read[0], DeadLetterRecord)
        posted = mark(read[0], name)
        await producer.send_and_wait(name, posted.value, partition=posted.partition, headers=posted.headers)
    letters = [each for each in read if isinstance(each, DeadLetterRecord)]
    assert len(letters) == len(read) == 30
    for partition in (0, 1):
        assert [each.offset for each in letters if each.partition == partition] == list(range(partition, 30, 2))
        places = [each.place for each in letters if each.partition == partition]
        assert places == [f"{partition}:{number}" for number in range(15)]
    again = [each async for each in read_dead_letters(broker.address, tenant, 10)]
    assert [each for each in again if isinstance(each, Mark)] == [Mark(letters[0].place)]
    assert len(again) == 31


async def test_a_tenant_without_the_topic_has_no_letters(broker: EmbeddedBroker, tenant: str) -> None:
    name = topic(tenant, "dead-letters")
    assert [each async for each in read_dead_letters(broker.address, tenant, 10)] == []
    assert await read_to_end(broker.address, [name], 120) == []
    async with observer(broker.address) as consumer:
        assert await partitions_of(consumer, name) == [], "asking must not create it"


async def test_a_broker_that_is_away_or_hangs_is_said_to(own_broker: EmbeddedBroker, tenant: str) -> None:
    away = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnavailable, match=f"no Kafka broker at {away}"):
        [each async for each in read_dead_letters(away, tenant, 5)]
    own_broker.start()
    own_broker.pause()
    with pytest.raises(BrokerUnavailable, match=r"did not answer in 0\.5 s"):
        [each async for each in read_dead_letters(own_broker.address, tenant, 0.5)]


async def test_a_record_is_found_at_its_offset_or_not_at_all(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    name = topic(tenant, "events")
    async with AIOKafkaProducer(bootstrap_servers=broker.address, linger_ms=20) as producer:
        for number in range(20):
            await producer.send(name, b"%d" % number, partition=0)
    async with observer(broker.address) as consumer:
        for offset in (0, 7, 19, 3):
            assert (await record_at(consumer, name, 0, offset)).value == b"%d" % offset
        assert await record_at(consumer, name, 0, 20) is None
        assert await record_at(consumer, name, 1, 0) is None
        assert await record_at(consumer, topic(tenant, "items"), 0, 0) is None


@pytest.fixture
async def patterns(broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics) -> str:
    """A topic of one partition."""
    await make_topics(broker.address, tenant, "patterns", partitions=1)
    return topic(tenant, "patterns")


@asynccontextmanager
async def running(follower: Follower) -> AsyncIterator[None]:
    following = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_a_record_that_nobody_can_take_is_said_once_and_comes_again_ever_later(
    broker: EmbeddedBroker, patterns: str, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []
    enough = asyncio.Event()

    async def take(fetched: Fetched) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 5:
            enough.set()
        raise RuntimeError("not this one")

    follower = Follower(broker.address, [patterns], take, what="lore", fetch_wait_ms=50, poll_ms=50)
    with caplog.at_level(logging.WARNING, "fleetlore.kafka.read"):
        async with running(follower), asyncio.timeout(120):
            await enough.wait()
    assert len([line for line in caplog.messages if "lore cannot be followed" in line]) == 1
    assert times[4] - times[3] > 0.8  # the fourth pause: 0.1, 0.2, 0.4, 0.8


async def test_what_cannot_be_read_is_skipped_and_counted_and_the_follower_catches_up(
    broker: EmbeddedBroker, patterns: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Raw(b"{}", b"key", [(b"\xff", b"1")])
    await asyncio.to_thread(produce, broker.address, patterns, batch([Raw(b"1"), odd, Raw(b"2"), odd, odd]))
    found: list[bytes] = []

    async def take(fetched: Fetched) -> None:
        found.extend(record.value or b"" for records in fetched.values() for record in records)

    follower = Follower(broker.address, [patterns], take, what="lore", fetch_wait_ms=50, poll_ms=50)
    async with running(follower):
        assert await follower.caught_up(120)
    assert (found, follower.skipped, follower.loaded) == ([b"1", b"2"], 3, True)
    assert [line for line in caplog.messages if f"{patterns}[0]@1 is skipped" in line and "2 more" in line]
    assert [each.value for each in await read_to_end(broker.address, [patterns], 120)] == [b"1", b"2"]
    async with observer(broker.address) as consumer:
        assert await record_at(consumer, patterns, 0, 1) is None
        third = await record_at(consumer, patterns, 0, 2)
        assert third is not None and third.value == b"2"


async def test_catching_up_waits_for_no_fetch_that_the_broker_holds(
    broker: EmbeddedBroker, patterns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers the requests of a connection one after the other, and a fetch may wait for seconds."""
    follower = Follower(broker.address, [patterns], never, what="lore", fetch_wait_ms=50, poll_ms=50)

    async def held(consumer: Any) -> Any:
        await asyncio.Event().wait()

    async with running(follower):
        await until(lambda: follower.connected)
        monkeypatch.setattr("fleetlore.kafka.read._ends", held)
        assert await follower.caught_up(120)


async def test_a_slow_reader_waits_for_no_fetch_of_the_partitions_that_it_has_read(
    mock_cluster: str, tenant: str
) -> None:
    """Between two parts of a long partition aiokafka asks for the others alone, and Kafka holds that request."""
    name = topic(tenant, "patterns")
    async with AIOKafkaProducer(bootstrap_servers=mock_cluster) as producer:
        await asyncio.gather(*[await producer.send(name, b"x" * 50_000, partition=0) for _ in range(10)])

    async def slow(fetched: Fetched) -> None:
        await asyncio.sleep(0.15 if any(fetched.values()) else 0.0)

    follower = Follower(mock_cluster, [name], slow, what="lore", fetch_wait_ms=200_000, most=20)
    async with running(follower):
        assert await follower.caught_up(150)


async def test_a_codec_that_is_not_installed_is_an_error_that_says_what_to_install(
    broker: EmbeddedBroker, patterns: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(produce, broker.address, patterns, batch([Raw(b"1")], "zstd"))
    monkeypatch.setattr(codec, "cramjam", None)
    reported = asyncio.Event()
    monkeypatch.setattr(read.log, "error", lambda *said: (log_error(*said), reported.set()))
    follower = Follower(broker.address, [patterns], never, what="lore", fetch_wait_ms=50, poll_ms=50)
    async with running(follower), asyncio.timeout(120):
        await reported.wait()
    [said] = [line for line in caplog.messages if "zstd" in line]
    assert "pip install 'fleetlore[codecs]'" in said and patterns in said
    assert not follower.loaded and not follower.skipped


log_error = read.log.error


async def never(fetched: Fetched) -> None:
    assert not any(fetched.values())
