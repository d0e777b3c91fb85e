"""Bad input becomes dead letters with a reason, and the other events are processed."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
import pytest

from benchmarks.cloudevents import to_cloudevent
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import MAX_VALUE_BYTES
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from tests.rows import for_each
from tests.streams.broker_pipeline import BrokerPipeline
from tests.streams.log_pipeline import RIGHT, LogPipeline, flat

Pipeline = LogPipeline | BrokerPipeline
Change = Callable[[dict[str, Any]], Any]

TEN_MEGABYTES = 10 * 1024 * 1024


def changed(**changes: Any) -> Change:
    return lambda event: {name: value for name, value in {**event, **changes}.items() if value is not ...}


def with_data(**data: Any) -> Change:
    return lambda event: {**event, "data": {**event["data"], **data}}


# A bad event in a record that also holds good ones, one for each reason: tests/fleetlore/wire/test_events.py has more.
BESIDE_GOOD_ONES: dict[str, tuple[Change, str]] = {
    "a number": (lambda event: 7, "wrong_shape"),
    "JSON of something else": (lambda event: {"hello": "world"}, "unknown_version"),
    "no session": (changed(session=...), "missing_field"),
    "an unknown type": (changed(type="ai.fleetlore.party.v1"), "unknown_type"),
    "a time in the future": (changed(time="2999-01-01T00:00:00Z"), "future_time"),
    "control characters in the session": (changed(session="s\u0000\u001b[31m"), "control_characters"),
    "another tenant": (changed(tenant="somebody-else"), "foreign_tenant"),
    "an event that is too large": (with_data(**{ev.RESULT: "x" * 300_000}), "too_large"),
    "a sequence that jumps": (changed(sequence=40), "after_end"),
    "a sequence that is too large": (changed(sequence=10**30), "bad_field"),
}


async def assert_good_session_is_known(pipeline: Pipeline) -> None:
    judgments = {row["session"]: (row["label"], row["events"]) for row in await pipeline.bodies("judgments")}
    assert judgments == {"good": ("success", 4)}
    [tool] = [row for row in await pipeline.bodies("patterns") if row["level"] == "tool"]
    assert tool["calls"] >= 2


async def test_bad_events_beside_good_ones(pipeline: Pipeline) -> None:
    expected = [reason for _, reason in BESIDE_GOOD_ONES.values()]
    before = {reason: await pipeline.metric("fleetlore_dead_letters_total", reason=reason) for reason in expected}
    # One record: a session of four events, and after its first two the bad ones.
    good = [to_cloudevent(event) for event in pipeline.story.session("good", RIGHT, RIGHT)]
    bad = [change(dict(good[1])) for change, _ in BESIDE_GOOD_ONES.values()]
    await pipeline.send_raw(json.dumps([*good[:2], *bad, *good[2:]]).encode(), key=b"good")
    await pipeline.drain()
    await assert_good_session_is_known(pipeline)
    letters = await pipeline.dead_letters()
    assert sorted(headers["dlq.reason"] for headers, _ in letters) == sorted(expected)
    for headers, value in letters:
        assert headers["dlq.topic"] == topic(pipeline.tenant, "events") and headers["dlq.stage"] == "sessions"
        assert headers["dlq.offset"] == "0" and headers["dlq.detail"] and value
    for reason, count in before.items():
        counted = await pipeline.metric("fleetlore_dead_letters_total", reason=reason)
        assert counted - count == expected.count(reason)
    assert all(committed == end for committed, end in (await pipeline.committed_offsets("events")).values())


AS_A_WHOLE = {
    b"hello": "not_json",
    b"\xff\xfe\x00": "not_json",
    b'[{"specversion": "1.0"': "not_json",
    b"[" * 5000: "not_json",
    b"42": "wrong_shape",
    b'{"a": 1}': "unknown_version",
    b"": "empty",
    b"[NaN]": "wrong_shape",
    b"[" * 100_000: "not_json",
    b'["\\ud800"]': "wrong_shape",
    b"null": "wrong_shape",
}


async def test_records_that_are_bad_as_a_whole(pipeline: Pipeline) -> None:
    # The same key: the good records lie on the same partition, before and behind the bad ones.
    good = pipeline.story.session("good", RIGHT, RIGHT)
    await pipeline.send(good[:2])
    for value in AS_A_WHOLE:
        await pipeline.send_raw(value, key=b"good")
    await pipeline.take(good[2:])
    await assert_good_session_is_known(pipeline)
    names = ("dlq.reason", "dlq.offset", "dlq.bytes", "dlq.sha256")
    letters = {value or b"": tuple(headers[name] for name in names) for headers, value in await pipeline.dead_letters()}
    assert letters == {
        value: (reason, str(offset), str(len(value)), sha256(value).hexdigest())
        for offset, (value, reason) in enumerate(AS_A_WHOLE.items(), 2)
    }


@pytest.mark.tansu  # Kafka refuses it itself
async def test_an_event_of_ten_megabytes(pipeline: Pipeline) -> None:
    counted = await pipeline.metric("fleetlore_dead_letters_total", reason="too_large")
    good = pipeline.story.session("good", RIGHT, RIGHT)
    large = Event(
        "outcome", pipeline.tenant, "a", "large", 0, good[0].time, {ev.TOOL: "x", ev.RESULT: "y" * TEN_MEGABYTES}
    )
    beside = [*good[:2], large]
    await pipeline.send_raw(orjson.dumps([to_cloudevent(event) for event in beside]), key=b"good")
    await pipeline.take(good[2:])
    await assert_good_session_is_known(pipeline)
    [(headers, value)] = await pipeline.dead_letters()
    assert headers["dlq.reason"] == "too_large"
    assert int(headers["dlq.bytes"]) > TEN_MEGABYTES
    assert 0 < len(value) <= MAX_VALUE_BYTES
    assert await pipeline.metric("fleetlore_dead_letters_total", reason="too_large") == counted + 1


@for_each("odd", b"\\ud83d", b"\xff", b"\x01")
async def test_half_a_surrogate_pair_in_a_record_costs_no_event_of_it(odd: bytes) -> None:
    pipeline = LogPipeline()
    events = pipeline.story.session("s", RIGHT, RIGHT)
    events[1].data[ev.RESULT] = "cut here HALF"
    value = orjson.dumps([to_cloudevent(event) for event in events]).replace(b"HALF", odd)
    await pipeline.send_raw(value, key=b"s")
    await pipeline.drain()
    assert await pipeline.dead_letters() == []
    assert (await pipeline.knowledge()).judgments == [("s", "success", 4)]


NUMBERS: list[tuple[str, Any, Any]] = [
    ("observations", 4, 255),  # failures of one call
    ("observations", 1, -1),
    ("observations", 5, 1e308),
    ("observations", 7, 2**64),
    ("trajectories", "started", 1e308),
    ("trajectories", "ended", -1e308),
    ("trajectories", "events", 2**70),
    ("trajectories", "events", 2**40),  # a session that goes on is made of all of them
    ("trajectories", "gaps", [[0, 2**40]]),
    ("trajectories", "gaps", [[0, 1_000_000]] * 1_000),
    ("candidates", "goal", 2**70),
    ("candidates", "seen", 1e308),
    ("candidates", "least_goals", -1),
]


async def test_no_later_stage_is_stopped_by_a_number_that_no_stage_writes() -> None:
    pipeline = LogPipeline()
    await pipeline.take(flat(pipeline.story.fleet()))
    for refused, (name, field, number) in enumerate(NUMBERS, 1):
        full = topic(pipeline.tenant, name)
        [value, *_], *_ = [orjson.loads(each.value or b"") for each in pipeline.log.read_all(full)]
        value[field] = number
        pipeline.log.append(full, json.dumps([value]).encode(), partition=0)
        await pipeline.drain()
        reasons = [headers["dlq.reason"] for headers, _ in await pipeline.dead_letters()]
        assert reasons == ["wrong_shape"] * refused, (name, field, number)
    await pipeline.take(pipeline.story.session("good", RIGHT, RIGHT))
    assert ("good", "success", 4) in (await pipeline.knowledge()).judgments
