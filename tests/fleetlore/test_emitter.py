from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.emitter import Emitter, encode_event
from fleetlore.events import ARGUMENTS, CONTENT, RESULT, TOOL, Event, parse_event
from fleetlore.records import BATCH_TYPE, CONTENT_TYPE, MAX_BYTES, MAX_EVENTS, decode_record
from fleetlore.redaction import may_hold_secret, redact_value
from fleetlore.testing import EmbeddedBroker
from fleetlore.topics import partition_for, topic


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
        async with asyncio.timeout(20):
            while sum(len(each) for _, each in records) < events:
                for part, batch in (await consumer.getmany(timeout_ms=200)).items():
                    for record in batch:
                        assert dict(record.headers)[CONTENT_TYPE] == BATCH_TYPE
                        assert len(record.value) <= MAX_BYTES
                        decoded: Any = decode_record(record.value, dict(record.headers))
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
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=4)
    emitter = Emitter(broker.address, tenant)
    await emitter.start()
    for sequence in range(100):
        for session in range(10):
            assert emitter.emit(outcome(f"s{session}", sequence, tenant))
    assert await emitter.flush(10)
    assert (emitter.sent, emitter.dropped, emitter.waiting) == (1000, 0, 0)
    await emitter.close()

    records = await read_topic(broker.address, topic(tenant, "events"), 1000)
    for partition, decoded in records:
        assert 1 <= len(decoded) <= MAX_EVENTS
        assert {partition_for(event["session"], 4) for event in decoded} == {partition}
    assert sequences(records) == {f"s{session}": list(range(100)) for session in range(10)}
    assert len(records) < 100  # many events share a record
    now = time.time()
    for _, decoded in records:
        for event in decoded:
            parse_event(event, tenant, now)


async def test_large_events_share_no_record_and_too_large_ones_are_cut_visibly(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    emitter = Emitter(broker.address, tenant)
    await emitter.start()
    for sequence in range(8):
        emitter.emit(outcome("s", sequence, tenant, **{RESULT: "x" * 100_000}))
    emitter.emit(outcome("s", 8, tenant, **{RESULT: "y" * 10_000_000}))
    assert await emitter.flush(10)
    await emitter.close()
    records = await read_topic(broker.address, topic(tenant, "events"), 9)
    assert sequences(records) == {"s": list(range(9))}
    assert max(len(decoded) for _, decoded in records) == 2
    last = records[-1][1][-1]["data"]
    assert last[TOOL] == "sql" and last[RESULT].startswith("yyy") and "characters cut]" in last[RESULT]


async def test_secrets_do_not_leave_the_process(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> None:
    await make_topics(broker.address, tenant, "events", partitions=1)
    emitter = Emitter(broker.address, tenant)
    await emitter.start()
    emitter.emit(outcome("s", 0, tenant, **{ARGUMENTS: {"url": "postgres://u:hunter22@h/d", "password": "hunter22"}}))
    assert await emitter.flush(10)
    await emitter.close()
    (_, [event]), *_ = await read_topic(broker.address, topic(tenant, "events"), 1)
    assert "hunter22" not in orjson.dumps(event).decode()
    assert event["data"][ARGUMENTS]["password"] == "[redacted:password]"


async def test_a_missing_broker_costs_the_agent_nothing(caplog: pytest.LogCaptureFixture, unused_address: str) -> None:
    emitter = Emitter(unused_address, "default", max_events=100)
    with caplog.at_level(logging.INFO):
        await emitter.start()
        started = time.perf_counter()
        accepted = [emitter.emit(outcome("s", sequence)) for sequence in range(250)]
        assert time.perf_counter() - started < 1.0
        assert accepted == [True] * 100 + [False] * 150
        assert (emitter.dropped, emitter.waiting) == (150, 100)
        started = time.perf_counter()
        assert not await emitter.flush(0.3)
        assert time.perf_counter() - started < 1.5
        started = time.perf_counter()
        await emitter.close(timeout_seconds=0.3)
        assert time.perf_counter() - started < 4.0
    assert (emitter.sent, emitter.dropped, emitter.waiting) == (0, 250, 0)
    assert not emitter.emit(outcome("s", 0))
    assert len([record for record in caplog.records if record.name.startswith(("fleetlore", "aiokafka"))]) <= 1


async def test_the_buffer_is_bounded_in_bytes_too(unused_address: str) -> None:
    emitter = Emitter(unused_address, "default", max_bytes=100_000)
    accepted = sum(emitter.emit(outcome("s", n, **{RESULT: "x" * 10_000})) for n in range(20))
    assert accepted == 10
    await emitter.close()


async def test_a_broker_that_comes_late_gets_everything_in_order(own_broker: EmbeddedBroker) -> None:
    emitter = Emitter(own_broker.address, "default")
    await emitter.start()
    for sequence in range(50):
        emitter.emit(outcome("s", sequence))
    assert not await emitter.flush(0.3)  # it has tried and failed
    own_broker.start()
    assert await emitter.flush(15)
    await emitter.close()
    records = await read_topic(own_broker.address, topic("default", "events"), 50)
    assert first_time(sequences(records)["s"]) == list(range(50))


async def test_a_broker_killed_in_the_middle(own_broker: EmbeddedBroker, make_topics: Any) -> None:
    own_broker.start()
    await make_topics(own_broker.address, "default", "events", partitions=2)
    emitter = Emitter(own_broker.address, "default", max_events=500)
    await emitter.start()
    for sequence in range(10):
        emitter.emit(outcome("s", sequence))
    assert await emitter.flush(10)
    own_broker.kill()
    # The agent goes on as fast as before; what does not fit is refused, and what was accepted is kept.
    started = time.perf_counter()
    accepted = [emitter.emit(outcome("s", sequence)) for sequence in range(10, 1010)]
    assert time.perf_counter() - started < 2.0
    assert accepted == [True] * 500 + [False] * 500
    assert not await emitter.flush(0.2)
    own_broker.start()
    assert await emitter.flush(30)
    assert (emitter.sent, emitter.dropped) == (510, 500)
    await emitter.close()


async def test_a_broker_that_hangs_for_a_while_gets_everything_in_order(
    own_broker: EmbeddedBroker, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.emitter._REQUEST_TIMEOUT_SECONDS", 0.5)
    own_broker.start()
    await make_topics(own_broker.address, "default", "events", partitions=2)
    emitter = Emitter(own_broker.address, "default")
    await emitter.start()
    for sequence in range(300):
        emitter.emit(outcome("s", sequence))
        emitter.emit(outcome("r", sequence))
        if sequence == 100:
            assert await emitter.flush(10)
            own_broker.pause()
        if sequence == 200:
            assert not await emitter.flush(1.5)  # longer than a request may take: it is tried again
    own_broker.resume()
    assert await emitter.flush(20)
    assert (emitter.sent, emitter.dropped) == (600, 0)
    await emitter.close()
    records = await read_topic(own_broker.address, topic("default", "events"), 600)
    for numbers in sequences(records).values():
        assert first_time(numbers) == list(range(300))


async def test_a_broker_that_hangs_does_not_hang_the_agent(own_broker: EmbeddedBroker, make_topics: Any) -> None:
    own_broker.start()
    await make_topics(own_broker.address, "default", "events")
    emitter = Emitter(own_broker.address, "default", max_events=50)
    await emitter.start()
    emitter.emit(outcome("s", 0))
    assert await emitter.flush(10)
    own_broker.pause()
    started = time.perf_counter()
    for sequence in range(1, 101):
        emitter.emit(outcome("s", sequence))
    assert emitter.dropped == 50
    assert not await emitter.flush(0.3)
    await emitter.close(timeout_seconds=0.3)
    assert time.perf_counter() - started < 5.0
    assert (emitter.sent, emitter.dropped) == (1, 100)


async def test_flush_waits_for_what_was_emitted_before_it_only(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events")
    emitter = Emitter(broker.address, tenant)
    await emitter.start()
    stop = False

    async def keep_busy() -> None:
        sequence = 0
        while not stop:
            emitter.emit(outcome("busy", sequence, tenant))
            sequence += 1
            await asyncio.sleep(0.001)

    busy = asyncio.create_task(keep_busy())
    while emitter.sent == 0:
        await asyncio.sleep(0.01)
    assert await emitter.flush(10)
    stop = True
    await busy
    await emitter.close()
    assert emitter.dropped == 0


async def test_any_kafka_broker_will_do(mock_cluster: str, tenant: str) -> None:
    emitter = Emitter(mock_cluster, tenant)
    await emitter.start()
    for sequence in range(200):
        emitter.emit(outcome(f"s{sequence % 7}", sequence // 7, tenant))
    assert await emitter.flush(20)
    await emitter.close()
    records = await read_topic(mock_cluster, topic(tenant, "events"), 200)
    assert all(numbers == sorted(numbers) for numbers in sequences(records).values())


async def test_closing_twice_or_unstarted_is_fine(unused_address: str) -> None:
    emitter = Emitter(unused_address, "default")
    emitter.emit(outcome("s", 0))
    await emitter.close()
    await emitter.close()
    assert emitter.dropped == 1


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.lists(st.integers()) | st.floats(), max_size=5))
def test_whatever_an_agent_says_becomes_one_json_object(data: dict[str, Any]) -> None:
    assert orjson.loads(encode_event(outcome("s", 1, **data)))["session"] == "s"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Broken(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


class Colour(Enum):
    RED = "password=hunter22"


@dataclass
class Record:
    password: str = "hunter22"


def cycle() -> list[Any]:
    members: list[Any] = []
    members.append(members)
    return members


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**64 - 1, 2**64 - 1),
        (2**70, str(2**70)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ({1: "a", None: "b", (2, 3): "c"}, {"1": "a", "None": "b", "(2, 3)": "c"}),
        ((1, {2}), [1, [2]]),
        (float("nan"), None),
        (b"password=hunter22", "password=[redacted:password]"),
        (Colour.RED, "password=[redacted:password]"),
        (Record(), "Record(password='[redacted:password]')"),
        ({"at": datetime(2026, 1, 1)}, {"at": "2026-01-01 00:00:00"}),
        (Path("/a/b"), "/a/b"),
        (Unprintable(), "<unprintable Unprintable>"),
        (Broken(a=1), "<unreadable Broken>"),
        ("\ud800", "?"),
        ({"pass\u0077ord": "hunter22"}, {"password": "[redacted:password]"}),
    ],
)
def test_what_is_no_json_is_written_all_the_same(value: Any, written: Any) -> None:
    for name in (ARGUMENTS, RESULT):
        event = Event("outcome", "default", "agent", "s", 1, 0.0, {TOOL: "sql", name: value})
        assert orjson.loads(encode_event(event))["data"] == {TOOL: "sql", name: written}


def test_emit_never_raises(unused_address: str) -> None:
    emitter = Emitter(unused_address, "default")
    assert emitter.emit(
        outcome("s", 0)._replace(data={TOOL: "sql", RESULT: cycle(), ARGUMENTS: {"x": Unprintable(), 1: 2**80}})
    )
    for broken in (outcome("s", 1)._replace(time=float("nan")), outcome("\ud800", 2)):
        assert not emitter.emit(broken)
    assert (emitter.waiting, emitter.dropped) == (1, 2)


texts = st.text(max_size=12) | st.sampled_from(
    [
        "password",
        "API_KEY",
        "Authorization",
        "hunter2secret9",
        "basic dXNlcjpwYXNz",
        "gh" + "p_" + "a1B2" * 9,
        '"',
        "\\",
    ]
)
json_values = st.recursive(
    texts | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_what_is_not_looked_at_in_its_parts_holds_no_secret(value: Any) -> None:
    if not may_hold_secret(orjson.dumps(value).decode()):
        assert redact_value(value) == value


@pytest.mark.parametrize(
    "data",
    [
        {RESULT: "x" * 1_000_000},
        {RESULT: "\x00" * 1_000_000},  # six bytes each in JSON
        {RESULT: "é😀" * 500_000},
        {RESULT: [["x" * 1000] * 100] * 100},
        {ARGUMENTS: {f"key{n}": "v" * 100 for n in range(10_000)}, RESULT: "x" * 1_000_000, CONTENT: "x" * 1_000_000},
        {ARGUMENTS: {"k" * 400_000: 1}},
        {RESULT: "\ud800 lone surrogate"},
    ],
)
def test_an_event_always_fits_a_record(data: dict[str, Any]) -> None:
    value = encode_event(outcome("s", 1, **data))
    assert len(value) + 2 <= MAX_BYTES
    assert orjson.loads(value)["data"][TOOL].startswith("s")
