import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest
from aiokafka import AIOKafkaConsumer
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.emitter import Emitter, _records
from fleetlore.wire.events import ARGUMENTS, BATCH_TYPE, CONTENT_TYPE, MAX_BYTES, MAX_EVENTS, RESULT, TOOL, Event
from fleetlore.wire.topics import partition_for, topic
from tests.read_back import read_back
from tests.waiting import until


@asynccontextmanager
async def emitting(address: str, tenant: str = "default", **options: Any) -> AsyncIterator[Emitter]:
    emitter = Emitter(address, tenant, **options)
    await emitter.start()
    try:
        yield emitter
    finally:
        await emitter.close()


HANGS_SECONDS = 120.0  # a busy machine makes any step late; what waits for the broker waits for ever


@pytest.fixture
async def address(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> str:
    """Of a broker on which the tenant has a topic of events."""
    await make_topics(broker.address, tenant, "events", partitions=4)
    return broker.address


def outcome(session: str, sequence: int, tenant: str = "default", **data: Any) -> Event:
    return Event("outcome", tenant, "agent", session, sequence, 1_767_225_600.0, {TOOL: "sql", **data})


async def read_topic(address: str, name: str, events: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """Records of a topic, each with its partition and decoded events, until at least `events` have come."""
    consumer = AIOKafkaConsumer(
        name, bootstrap_servers=address, auto_offset_reset="earliest", fetch_max_wait_ms=50, enable_auto_commit=False
    )
    await consumer.start()
    records: list[tuple[int, list[dict[str, Any]]]] = []
    try:
        async with asyncio.timeout(120):
            while sum(len(each) for _, each in records) < events:
                for part, batch in (await consumer.getmany(timeout_ms=200)).items():
                    for record in batch:
                        assert dict(record.headers)[CONTENT_TYPE] == BATCH_TYPE
                        assert len(record.value) <= MAX_BYTES
                        decoded: Any = orjson.loads(record.value)
                        records.append((part.partition, decoded))
    finally:
        await consumer.stop()
    return records


def sequences(records: Iterable[tuple[int, list[dict[str, Any]]]]) -> dict[str, list[int]]:
    """Sequence numbers of each session in the order they lie in the log."""
    found: dict[str, list[int]] = {}
    for _, decoded in records:
        for event in decoded:
            found.setdefault(event["session"], []).append(event["sequence"])
    return found


def first_time(numbers: list[int]) -> list[int]:
    """Delivery is at least once: what a reader keeps that drops duplicates."""
    return list(dict.fromkeys(numbers))


async def test_sessions_arrive_in_order_on_the_partition_of_their_key(
    address: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._KNOWN_SESSIONS", 7)
    async with emitting(address, tenant) as emitter:  # fewer than there are
        for sequence in range(100):
            for session in range(10):
                assert emitter.emit(outcome(f"s{session}", sequence, tenant))
        assert await emitter.flush(120)
        assert (emitter.sent, emitter.dropped, emitter.waiting) == (1000, 0, 0)

    records = await read_topic(address, topic(tenant, "events"), 1000)
    for partition, decoded in records:
        assert 1 <= len(decoded) <= MAX_EVENTS
        assert {partition_for(event["session"], 4) for event in decoded} == {partition}
    assert sequences(records) == {f"s{session}": list(range(100)) for session in range(10)}
    assert len(records) < 100  # many events share a record
    now = time.time()
    for _, decoded in records:
        for event in decoded:
            read_back(event, tenant, now)


async def test_too_large_events_are_cut_visibly(address: str, tenant: str) -> None:
    async with emitting(address, tenant) as emitter:
        for sequence in range(8):
            emitter.emit(outcome("s", sequence, tenant, **{RESULT: "x" * 100_000}))
        emitter.emit(outcome("s", 8, tenant, **{RESULT: "y" * 10_000_000}))
        assert await emitter.flush(120)
    records = await read_topic(address, topic(tenant, "events"), 9)
    assert sequences(records) == {"s": list(range(9))}
    last = records[-1][1][-1]["data"]
    assert last[TOOL] == "sql" and last[RESULT].startswith("yyy") and "characters cut]" in last[RESULT]


async def test_a_missing_broker_costs_the_agent_nothing(caplog: pytest.LogCaptureFixture, unused_address: str) -> None:
    emitter = Emitter(unused_address, "default", max_events=100)
    with caplog.at_level(logging.INFO):
        await emitter.start()
        started = time.perf_counter()
        accepted = [emitter.emit(outcome("s", sequence)) for sequence in range(250)]
        assert accepted == [True] * 100 + [False] * 150
        assert (emitter.dropped, emitter.waiting) == (150, 100)
        assert not await emitter.flush(0.3)
        await until(lambda: any("no events reach" in message for message in caplog.messages))
        await emitter.close(timeout_seconds=0.3)
        assert time.perf_counter() - started < HANGS_SECONDS
    assert (emitter.sent, emitter.dropped, emitter.waiting) == (0, 250, 0)
    assert not emitter.emit(outcome("s", 0))
    said = [record.message for record in caplog.records if record.name.startswith(("fleetlore", "aiokafka"))]
    assert [line.split(" broker ")[0] for line in said][-2:] == ["no events reach", "250 events were dropped:"]
    assert len(said) == 2


async def test_the_buffer_is_bounded_in_bytes_too(unused_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._MAX_WAITING_BYTES", 75_000)
    emitter = Emitter(unused_address, "default")
    accepted = sum(emitter.emit(outcome("s", n, **{RESULT: "x" * 7_500})) for n in range(20))
    assert accepted == 10
    await emitter.close()


async def test_who_waits_without_hurry_leaves_the_batch_its_time(
    address: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._LINGER_SECONDS", 300.0)
    async with emitting(address, tenant) as emitter:
        emitter.emit(outcome("s", 0, tenant))
        assert await emitter.flush(120)
        emitter.emit(outcome("s", 1, tenant))
        waiting = asyncio.create_task(emitter.flush(120, hurried=False))
        assert not await emitter.flush(0.3, hurried=False)
        assert emitter.sent == 1
        assert await emitter.flush(120) and await waiting


async def test_a_broker_that_comes_late_and_is_killed_in_the_middle(own_broker: EmbeddedBroker) -> None:
    async with emitting(own_broker.address, "default", max_events=500) as emitter:
        for sequence in range(10):
            emitter.emit(outcome("s", sequence))
        assert not await emitter.flush(0.3)  # it has tried and failed
        own_broker.start()
        assert await emitter.flush(120)
        records = await read_topic(own_broker.address, topic("default", "events"), 10)
        assert first_time(sequences(records)["s"]) == list(range(10))
        own_broker.kill()
        # The agent goes on as fast as before; what does not fit is refused, and what was accepted is kept.
        started = time.thread_time()
        accepted = [emitter.emit(outcome("s", sequence)) for sequence in range(10, 1010)]
        assert time.thread_time() - started < 2.0
        assert accepted == [True] * 500 + [False] * 500
        assert not await emitter.flush(0.2)
        own_broker.start()
        assert await emitter.flush(120)
        assert (emitter.sent, emitter.dropped) == (510, 500)


async def test_a_broker_that_hangs_for_a_while_gets_everything_in_order(
    own_broker: EmbeddedBroker, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._REQUEST_SECONDS", 0.5)
    own_broker.start()
    await make_topics(own_broker.address, "default", "events", partitions=2)
    async with emitting(own_broker.address, "default") as emitter:
        for sequence in range(300):
            emitter.emit(outcome("s", sequence))
            emitter.emit(outcome("r", sequence))
            if sequence == 100:
                assert await emitter.flush(120)
                own_broker.pause()
            if sequence == 200:
                assert not await emitter.flush(1.5)  # longer than a request may take: it is tried again
        own_broker.resume()
        assert await emitter.flush(120)
        assert (emitter.sent, emitter.dropped) == (600, 0)
    records = await read_topic(own_broker.address, topic("default", "events"), 600)
    for numbers in sequences(records).values():
        assert first_time(numbers) == list(range(300))


async def test_a_broker_that_hangs_does_not_hang_the_agent(own_broker: EmbeddedBroker, make_topics: Any) -> None:
    own_broker.start()
    await make_topics(own_broker.address, "default", "events")
    emitter = Emitter(own_broker.address, "default", max_events=50)
    await emitter.start()
    emitter.emit(outcome("s", 0))
    assert await emitter.flush(120)
    own_broker.pause()
    started = time.perf_counter()
    for sequence in range(1, 101):
        emitter.emit(outcome("s", sequence))
    assert emitter.dropped == 50
    assert not await emitter.flush(0.3)
    await emitter.close(timeout_seconds=0.3)
    assert time.perf_counter() - started < HANGS_SECONDS
    assert (emitter.sent, emitter.dropped) == (1, 100)


async def test_flush_waits_for_what_was_emitted_before_it_only(address: str, tenant: str) -> None:
    async with emitting(address, tenant) as emitter:
        stop = False

        async def keep_busy() -> None:
            sequence = 0
            while not stop:
                emitter.emit(outcome("busy", sequence, tenant))
                sequence += 1
                await asyncio.sleep(0.001)

        busy = asyncio.create_task(keep_busy())
        await until(lambda: emitter.sent >= 1)
        assert await emitter.flush(120)
        stop = True
        await busy
    assert emitter.dropped == 0


async def test_closing_twice_or_unstarted_is_fine(unused_address: str) -> None:
    emitter = Emitter(unused_address, "default")
    emitter.emit(outcome("s", 0))
    await emitter.close()
    await emitter.close()
    assert emitter.dropped == 1


def test_emit_never_raises(unused_address: str) -> None:
    emitter = Emitter(unused_address, "default")
    assert emitter.emit(outcome("s", 0)._replace(data={TOOL: "sql", RESULT: object(), ARGUMENTS: {1: 2**80}}))
    for broken in (outcome("s", 1)._replace(time=float("nan")), outcome("\ud800", 2)):
        assert not emitter.emit(broken)
    assert (emitter.waiting, emitter.dropped) == (1, 2)


async def test_what_an_agent_changes_after_it_has_emitted_is_sent_as_it_was(address: str, tenant: str) -> None:
    async with emitting(address, tenant) as emitter:
        # The value is skipped, masked by its form or key, or turned into text.
        for value in ("plain", "password=hunter22", {"password": "hunter22"}, object()):
            data = {TOOL: "sql", ARGUMENTS: {"value": value, "list": [1]}}
            emitter.emit(Event("outcome", tenant, "agent", "s", 0, 0.0, data))
            data[ARGUMENTS]["list"].append(2)
            data[ARGUMENTS]["value"] = "changed"
            data.clear()
        assert await emitter.flush(120)
    records = await read_topic(address, topic(tenant, "events"), 4)
    sent = [event["data"] for _, decoded in records for event in decoded]
    assert [each[ARGUMENTS]["list"] for each in sent] == [[1]] * 4
    assert sent[0][ARGUMENTS]["value"] == "plain"
    assert sent[1][ARGUMENTS]["value"] == "password=[redacted:password]"
    assert sent[2][ARGUMENTS]["value"] == {"password": "[redacted:password]"}
    assert sent[3][ARGUMENTS]["value"].startswith("<object object")


@given(st.lists(st.integers(100, MAX_BYTES - 3) | st.integers(100, 500), min_size=1, max_size=300))
def test_records_hold_every_event_once_in_order_within_both_limits(sizes: list[int]) -> None:
    events = [(size, b"},", b"", b"", b"", 0.0, b"x" * (size - 64)) for size in sizes]
    records = list(_records(events))
    sent = [event for _, value in records for event in value[1:-2].split(b"},")]
    assert [event.count(b"x") for event in sent] == [size - 64 for size in sizes]
    assert [count for count, _ in records] == [value.count(b"}") for _, value in records]
    assert all(count <= MAX_EVENTS and len(value) <= MAX_BYTES for count, value in records)


async def test_news_that_came_before_the_connection_waits_for_no_company(
    address: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._LINGER_SECONDS", 300.0)
    emitter = Emitter(address, tenant)
    emitter.emit(outcome("s", 0, tenant))
    emitter.emit(outcome("s", 1, tenant), at_once=True)
    await emitter.start()
    await until(lambda: emitter.sent >= 2)
    await emitter.close()


async def test_news_waits_for_no_company_and_goes_after_what_came_before_it(
    address: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.emitter._LINGER_SECONDS", 300.0)
    async with emitting(address, tenant) as emitter:
        emitter.emit(outcome("s", 0, tenant))
        await asyncio.sleep(0.5)
        assert emitter.sent == 0
        emitter.emit(outcome("s", 1, tenant), at_once=True)
        await until(lambda: emitter.sent >= 2)
        emitter.emit(outcome("s", 2, tenant))
        await asyncio.sleep(0.3)
        assert emitter.sent == 2  # it waits again
        assert await emitter.flush(120)
    records = await read_topic(address, topic(tenant, "events"), 3)
    assert [event["sequence"] for _, decoded in records for event in decoded] == [0, 1, 2]


async def test_it_ends_though_the_broker_fails_as_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    emitter, closing = Emitter("nowhere:1", "default"), list[asyncio.Task[None]]()

    async def fail(*_: Any) -> None:
        closing.append(asyncio.create_task(emitter.close()))
        raise ConnectionError("the broker is away")

    producer = SimpleNamespace(partitions_for=AsyncMock(return_value={0}))
    monkeypatch.setattr("fleetlore.kafka.emitter.make_producer", lambda *_, **__: producer)
    monkeypatch.setattr("fleetlore.kafka.emitter.connected", nullcontext)
    monkeypatch.setattr(emitter, "_send_queue", fail)
    await emitter.start()
    await until(lambda: bool(closing))
    await closing[0]
    assert emitter._task.done()
