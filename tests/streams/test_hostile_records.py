"""Whatever a record holds, it has its effects or is a dead letter with a reason: no record stops a worker."""

import json
import logging
from contextlib import suppress
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.cloudevents import to_cloudevent
from fleetlore.kafka.read import read_dead_letters
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import MAX_HEADERS_BYTES, DeadLetterRecord, RawRecord, read_dead_letter
from fleetlore.wire.decode import OUTCOME
from fleetlore.wire.events import Event
from fleetlore.wire.principals import SIGNED_BY, Principals
from fleetlore.wire.topics import MAX_MESSAGE_BYTES, topic
from sinks.metrics import Metrics
from sinks.producer import POSITION, BatchProducer
from streams.stage import base
from streams.stage.base import Effects, Record, Values
from streams.stages.pipeline import FeedbackStage
from streams.stages.s1_sessions import parse
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.parse import read_events
from tests.build import letter
from tests.doubles.memory_log import Record as Read
from tests.odd_texts import ODD_IDS
from tests.streams.log_pipeline import RIGHT, LogPipeline

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
# JSON that no writer of Python makes: numbers without end, names that come twice, halves of characters, deep nesting.
NUMBERS = ["9" * 400, "-" + "9" * 5_000, "1e400", "-1e400", "1E-99999", "18446744073709551616", "NaN", "0.1", "true"]
ODD_JSON = [
    *NUMBERS,
    '"\\ud83d"',
    '"\\u0000"',
    '{"a":1,"a":{"":[]}}',
    *("[" * depth + "]" * depth for depth in (100, 500, 980, 1_010, 50_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (100, 500, 980, 1_010, 50_000)),
    *(json.dumps("[" * depth + "]" * depth) for depth in (100, 500, 980, 1_010, 50_000)),
    json.dumps('{"a":' * 990 + "1" + "}" * 990),
    json.dumps("[" * 980 + "1" + "]" * 980),
    json.dumps("x" * 300_000),
]
TIMES = [
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "1969-12-31T23:59:60Z",
    "2025-10-09T08:53:20.9999999999999999999Z",
    "-0001-01-01T00:00:00Z",
    "2025-10-09",
]


def spliced(path: str, value: str) -> bytes:
    """The good event with a piece of JSON in the place of a field."""
    changed = {**GOOD, "data": {**GOOD["data"]}}
    (changed["data"] if path in _DATA else changed)[path] = "SPLICED"
    return json.dumps(changed).replace('"SPLICED"', value).encode("utf-8", "surrogatepass")


_DATA = (ev.TOOL, ev.ARGUMENTS, ev.RESULT, ev.ERROR_TYPE, ev.ERROR_MESSAGE, ev.DURATION, ev.ADVICE, ev.ADAPTER)
_DATA += (ev.WITHHELD, ev.REWARD, ev.GOAL, ev.TASK, ev.PLACE, ev.USER, ev.OUTCOME, ev.CONTENT, ev.ROLE, ev.VIOLATION)
_json = st.one_of(
    st.sampled_from(ODD_JSON),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(ODD_IDS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ).map(json.dumps),
)
_values = st.one_of(
    st.none(),
    st.binary(max_size=60),
    _json.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.builds(spliced, st.sampled_from([*GOOD, *_DATA]), _json),
    st.builds(spliced, st.just("time"), st.sampled_from(TIMES).map(json.dumps)),
    st.lists(st.builds(spliced, st.sampled_from([*GOOD, *_DATA]), _json), max_size=3).map(
        lambda parts: b"[" + b",".join(parts) + b"]"
    ),
)
_header_values = st.one_of(
    st.none(), st.binary(max_size=12), st.sampled_from([b"1.0", b"9" * 5_000, b"\xff", OUTCOME.encode(), b"\xd9\xa3"])
)
_header_names = st.one_of(
    st.text(max_size=6),
    st.sampled_from([*BINARY, *(name.upper() for name in BINARY), "ce_", "ce_data", "ce_tenant", "content-type"]),
    st.sampled_from([SIGNED_BY, SIGNED_BY.upper(), "dlq.redriven", "dlq.topic", POSITION]),
)
_headers = st.lists(st.tuples(_header_names, _header_values), max_size=6).flatmap(
    lambda some: st.sampled_from([some, [*BINARY.items(), *some]])
)
_times = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(1_760_000_000_000))


def read_as(key: bytes | None, value: bytes | None, headers: Any, timestamp: Any) -> Record:
    return Record.of(Read(EVENTS, 0, 7, key, value, tuple(headers), timestamp))


@settings(max_examples=150)
@given(st.none() | st.binary(max_size=5), _values, _headers, _times, st.sampled_from([None, KNOWN]))
@example(None, b"{}", [*BINARY.items(), ("ce_session", None)], 0, None)
@example(None, b"{}", [*BINARY.items(), ("ce_sequence", b"9" * 5_000)], 0, None)
@example(None, b"{}", [("ce_specversion", b"1.0"), ("ce_specversion", b"2.0")], 0, None)
@example(None, b"{}", [*BINARY.items(), ("ce_agent", b"\xff\x00")], 0, None)
@example(None, orjson.dumps(GOOD), [(SIGNED_BY, None)], 0, KNOWN)
@example(None, orjson.dumps(GOOD), [], -(2**63), None)
@example(None, orjson.dumps(GOOD), [], None, None)
def test_a_record_is_events_or_dead_letters_and_no_defect(
    key: bytes | None, value: bytes | None, headers: Any, timestamp: int | None, principals: Principals | None
) -> None:
    record, effects = read_as(key, value, headers, timestamp), Effects()
    good = read_events(record, effects, principals)
    empty = value is not None and value.startswith(b"[") and json_or_none(value) == []
    assert good or effects.dead_letters or empty
    assert "unreadable" not in {each.reason for each in effects.dead_letters}
    for each in effects.dead_letters:
        written = record_of(each.record, each.value, each.reason, each.detail)
        kept = read_dead_letter(Read(written.topic, 0, 0, written.key, written.value, tuple(written.headers), 0))
        assert isinstance(kept, DeadLetterRecord) and kept.reason == each.reason


def json_or_none(value: bytes) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(value)


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
        monkeypatch.setattr(parse, "refusal", lambda event, *rest: fail(event.data) or real(event, *rest))
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
    assert Metrics("worker").dead_letters("unreadable")
