"""Whatever a record holds, it has its effects or is a dead letter with a reason: no record stops a worker."""

import json
import logging
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from typing import Any, cast
from unittest.mock import Mock

import orjson
import pytest

from benchmarks.cloudevents import to_cloudevent
from fleetlore.kafka.read import read_dead_letters
from fleetlore.wire import decode
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import MAX_HEADERS_BYTES, MAX_VALUE_BYTES, DeadLetterRecord, RawRecord, read_dead_letter
from fleetlore.wire.decode import OUTCOME
from fleetlore.wire.events import Event
from fleetlore.wire.principals import SIGNED_BY, Principals
from fleetlore.wire.topics import MAX_MESSAGE_BYTES, topic
from models.memory.pattern_state import PatternState
from sinks.producer import BatchProducer
from streams.stage import base
from streams.stage.base import Effects, Record, Values
from streams.stages.pipeline import FeedbackStage
from streams.stages.s1_sessions import parse
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.parse import read_events
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments import JudgmentsStage
from tests.build import letter
from tests.doubles.memory_log import Record as Read
from tests.rows import for_each
from tests.streams.broker_pipeline import BrokerPipeline
from tests.streams.log_pipeline import RIGHT, LogPipeline, flat, held

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


async def test_an_attribute_that_is_null_is_unset() -> None:
    """The JSON format of CloudEvents says so, and some SDKs write null for each attribute without a value."""
    pipeline = LogPipeline()
    events = [to_cloudevent(event) for event in pipeline.story.session("s", RIGHT, RIGHT)]
    unset = dict.fromkeys(("tenant", "id", "source", "subject", "datacontenttype"))
    await pipeline.send_raw(orjson.dumps([{**event, **unset} for event in events]), key=b"s")
    await pipeline.drain()
    assert await pipeline.dead_letters() == []
    assert (await pipeline.knowledge()).judgments == [("s", "success", 4)]


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


EVENTS = topic("acme", "events")
KNOWN = Principals("a secret of this test, 32 characters and more")

GOOD: dict[str, Any] = {
    "specversion": "1.0",
    "type": OUTCOME,
    "agent": "a",
    "session": "hostile",
    "sequence": 1,
    "time": "2025-10-09T08:53:20Z",
    "data": {ev.TOOL: "bash"},
}
BINARY = {f"ce_{name}": str(value).encode() for name, value in GOOD.items() if name != "data"}


def read_as(key: bytes | None, value: bytes | None, headers: Any, timestamp: Any) -> Record:
    return Record.of(Read(EVENTS, 0, 7, key, value, tuple(headers), timestamp))


@for_each(
    "headers, timestamp",
    ([*BINARY.items(), ("ce_session", None)], 0),
    ([*BINARY.items(), ("ce_sequence", b"9" * 5_000)], 0),
    ([("ce_specversion", b"1.0"), ("ce_specversion", b"2.0")], 0),
    ([*BINARY.items(), ("ce_agent", b"\xff\x00")], 0),
    ([(SIGNED_BY, None)], 0),
    ([], -(2**63)),
    ([], None),
)
@for_each("principals", None, KNOWN)
def test_a_record_is_events_or_dead_letters_and_no_defect(
    headers: Any, timestamp: int | None, principals: Principals | None
) -> None:
    """More of them: `tests/fuzz/records.py`."""
    effects = Effects()
    good = read_events(read_as(None, orjson.dumps(GOOD), headers, timestamp), effects, principals)
    assert good or effects.dead_letters
    assert "unreadable" not in {each.reason for each in effects.dead_letters}
    for each in effects.dead_letters:
        written = record_of(each.record, each.value, each.reason, each.detail)
        kept = read_dead_letter(Read(written.topic, 0, 0, written.key, written.value, tuple(written.headers), 0))
        assert isinstance(kept, DeadLetterRecord) and kept.reason == each.reason


def record_of(record: Record, value: bytes, reason: str, detail: str) -> RawRecord:
    place = {name: getattr(record, name) for name in ("topic", "partition", "offset", "key", "headers")}
    return letter(value=value, whole=value == (record.value or b""), reason=reason, detail=detail, **place)


async def test_a_header_without_a_value_goes_to_the_dead_letters_and_back(
    broker: Any, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "dead-letters", partitions=1)
    record = read_as(b"\xff", b"{}", [("a", None), ("b", b"1")], 0)
    async with BatchProducer(broker.address) as producer:
        made = record_of(record, b"{}", "missing_field", "no session")
        await producer.send([made._replace(topic=topic(tenant, "dead-letters"))])
    [kept] = [each async for each in read_dead_letters(broker.address, tenant, 30)]
    assert isinstance(kept, DeadLetterRecord)
    assert (kept.key, kept.headers) == (b"\xff", (("a", None), ("b", b"1")))


def test_headers_without_name_and_content_do_not_make_a_letter_that_no_broker_takes() -> None:
    large = letter(value=b"", headers={chr(0x1F600 + n): None for n in range(20_000)})
    assert sum(len(name.encode()) + len(content or b"") + 8 for name, content in large.headers) < MAX_HEADERS_BYTES * 2
    assert ("dlq.cut", b"headers") in large.headers and MAX_HEADERS_BYTES * 2 < MAX_MESSAGE_BYTES


def test_a_letter_of_forged_numbers_is_none() -> None:
    made = record_of(read_as(None, b"{}", [], 0), b"{}", "empty", "")
    numbers = [b"-1", b"9" * 5_000, b"9" * 19, b"", b"1e3", b"\xff", None]
    for field, number in product(["dlq.partition", "dlq.offset", "dlq.bytes"], numbers):
        headers = tuple((name, number if name == field else content) for name, content in made.headers)
        assert read_dead_letter(Read("t", 0, 0, None, b"{}", headers, 0)) is None, (field, number)


class Defect(Exception):
    """Raised by code that reads."""


def fail(value: object) -> None:
    if "DEFECT" in repr(value):
        raise Defect


@pytest.mark.parametrize("where", ["refusal", "clean", "suspects", "add"])
async def test_a_defect_of_the_code_that_reads_costs_one_record_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """The other session is judged as if the record had not come, and the log names the defect."""
    monkeypatch.setattr(base, "_reported", set())
    pipeline = LogPipeline()
    bad = pipeline.story.session("defect", ("bash", {"command": "DEFECT"}, "DEFECT", None), outcome=None)[1]
    if where == "refusal":
        real: Any = parse.refusal
        for module in (parse, decode):
            monkeypatch.setattr(module, "refusal", lambda event, *rest: fail(event.data) or real(event, *rest))
    elif where in ("clean", "suspects"):
        name = "arguments_text" if where == "clean" else "suspects"
        plain: Any = getattr(parse, name)
        monkeypatch.setattr(parse, name, lambda value: fail(value) or plain(value))
    else:
        added: Any = OpenSession.add
        monkeypatch.setattr(OpenSession, "add", lambda self, event, time: fail(event.data) or added(self, event, time))
    good = pipeline.story.session("good", RIGHT, RIGHT)
    start = Event("session.started", pipeline.tenant, bad.agent, "defect", 0, bad.time, {ev.GOAL: "g"})
    with caplog.at_level(logging.ERROR):
        await pipeline.send([good[0], start, good[1]])
        await pipeline.send([bad])
        await pipeline.send([bad._replace(sequence=2)])
        await pipeline.send(good[2:])
        if where != "add":
            record = Record(EVENTS, 0, 0, None, orjson.dumps(to_cloudevent(bad)), {})
            effects = await FeedbackStage().process([record])
            assert [each.reason for each in effects.dead_letters] == ["unreadable"]
        await pipeline.drain()
    assert ("good", "success", 4) in (await pipeline.knowledge()).judgments
    letters = await pipeline.dead_letters()
    assert [(headers["dlq.reason"], "Defect" in headers["dlq.detail"]) for headers, _ in letters] == [
        ("unreadable", True)
    ] * 2
    assert all(b"DEFECT" in value for _, value in letters)
    [logged] = [each for each in caplog.records if each.name == base.__name__]
    assert logged.exc_info and logged.exc_info[0] is Defect and EVENTS in logged.getMessage()


@for_each(
    "where, name",
    (parse, "arguments_text"),
    (OpenSession, "add"),
    (PatternsStage, "merge"),
    (PatternState, "restore"),
    (JudgmentsStage, "_judge_session"),
)
async def test_a_worker_that_lacks_memory_ends_and_its_records_stay_to_be_read(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    pipeline = LogPipeline()
    await pipeline.send(pipeline.story.session("before", RIGHT))
    await pipeline.drain()
    pipeline.start()
    await pipeline.send(pipeline.story.session("now", RIGHT))
    with monkeypatch.context() as small:
        small.setattr(where, name, Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            await pipeline.drain()
    pipeline.start()
    await pipeline.drain()
    assert not await pipeline.dead_letters()
    assert ("now", "success", 3) in (await pipeline.knowledge()).judgments


async def test_a_defect_met_by_a_first_event_holds_no_event_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, taken = LogPipeline(), cast(Any, OpenSession)._take_outcome
    monkeypatch.setattr(OpenSession, "_take_outcome", lambda self, *event: fail(event[-1]) or taken(self, *event))
    first, *others = pipeline.story.session("s", ("bash", {"command": "DEFECT"}, "", None), RIGHT)[1:]
    await pipeline.take([each._replace(sequence=each.sequence - 1) for each in others])
    await pipeline.take([first._replace(sequence=0)])
    assert [headers["dlq.reason"] for headers, _ in await pipeline.dead_letters()] == ["unreadable"]
    assert held(pipeline) == 0 and (await pipeline.knowledge()).judgments == [("s", "success", 3)]


def test_a_defect_of_a_decoder_costs_one_value_of_a_later_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Values[Any] = Values(int)

    def read(part: bytes) -> Any:
        if part == b"2":
            raise OverflowError("too far")
        return int(part)

    def read_all(value: bytes) -> Any:
        raise OverflowError("too far")

    values._read_all, values._read_first = read_all, read
    effects = Effects()
    record = Record(topic("acme", "observations"), 0, 3, None, b"[1,2,3]", {})
    assert [value for _, value in values.read([record], effects)] == [1, 3]
    [bad] = effects.dead_letters
    assert (bad.value, bad.reason) == (b"2", "unreadable") and "too far" in bad.detail
    assert effects.processed == 2
