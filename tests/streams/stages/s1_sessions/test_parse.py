"""Events are read and cleaned: bad ones get a reason, what a client sends becomes text, and no secret gets past."""

from typing import Any

import msgspec
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cloudevents import encode_record, to_cloudevent
from fleetlore.redact.redact import redact
from fleetlore.testing import FakeClock
from fleetlore.wire import events as ev
from fleetlore.wire.decode import MESSAGE, OUTCOME, STARTED, Incoming
from fleetlore.wire.events import BATCH_HEADERS, CONTENT_TYPE, EVENT_TYPE, Event
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import clean, read_events
from streams.stages.s1_sessions.stage import SessionsStage
from tests.build import incoming
from tests.rows import for_each

NOW = 1_767_225_600.0


def event(sequence: int, text: str = "ok") -> Event:
    return Event("outcome", "acme", "a", "s", sequence, NOW, {ev.TOOL: "bash", ev.RESULT: text})


def record(value: bytes | None, headers: dict[str, bytes] | None = None) -> Record:
    return Record(topic("acme", "events"), 0, 7, None, value, headers or {}, NOW)


def read(value: bytes | None, headers: dict[str, bytes] | None = None) -> tuple[list[Incoming], Effects]:
    effects = Effects()
    return read_events(record(value, headers), effects), effects


def reasons(value: bytes | None, headers: dict[str, bytes] | None = None) -> list[str]:
    return [letter.reason for letter in read(value, headers)[1].dead_letters]


def test_a_batch_reads_as_the_events_it_was_made_of() -> None:
    events, effects = read(encode_record([event(number) for number in range(5)]), dict(BATCH_HEADERS))
    assert [(each.session, each.sequence, each.data.tool, each.data.result) for each in events] == [
        ("s", number, "bash", "ok") for number in range(5)
    ]
    assert effects.processed == 5
    large = read(encode_record([event(number, "x" * 9_000) for number in range(64)]))[1]
    assert (large.processed, large.dead_letters) == (64, []), "the bound is of an event, not of a record"


@for_each("headers", None, {CONTENT_TYPE: EVENT_TYPE}, {CONTENT_TYPE: b"text/plain"})
def test_a_single_structured_event_is_read_whatever_its_content_type(headers: dict[str, bytes] | None) -> None:
    [read_back] = read(orjson.dumps(to_cloudevent(event(3))), headers)[0]
    assert (read_back.sequence, read_back.time.timestamp()) == (3, NOW)


def test_binary_mode_has_the_attributes_in_headers() -> None:
    attributes = to_cloudevent(event(3))
    data = attributes.pop("data")
    headers = {f"ce_{name}": str(value).encode() for name, value in attributes.items()}
    [read_back] = read(orjson.dumps(data), {**headers, CONTENT_TYPE: b"application/json"})[0]
    assert read_back == read(encode_record([event(3)]))[0][0]


@for_each("sequence", b"", b"three", b"-1", b"\xff", "³".encode(), b"1.5", b"9" * 5_000)
def test_a_bad_sequence_in_binary_mode_is_refused_and_breaks_nothing(sequence: bytes) -> None:
    headers = {f"ce_{name}": str(value).encode() for name, value in to_cloudevent(event(3)).items() if name != "data"}
    assert reasons(b'{"gen_ai.tool.name": "bash"}', {**headers, "ce_sequence": sequence}) == ["bad_field"]
    assert reasons(b"[1, 2]", headers) == ["bad_field"], "an array is the data of one event, and no batch"


def test_a_bad_event_is_kept_with_the_very_bytes_it_had() -> None:
    odd = b'{ "specversion" : "0.3", "id": 1 }'
    events, effects = read(b"[" + orjson.dumps(to_cloudevent(event(0))) + b" , " + odd + b"]")
    assert [each.sequence for each in events] == [0]
    assert [(letter.reason, letter.value) for letter in effects.dead_letters] == [("unknown_version", odd)]


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-5, max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just("success"),
    st.just("x" * 257),
    st.just("tab\there"),
    st.just("a\u00a0b"),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
FIELDS = (ev.TOOL, ev.ARGUMENTS, ev.RESULT, ev.ERROR_TYPE, ev.ERROR_MESSAGE, ev.DURATION, ev.ADVICE, ev.ADAPTER)
FIELDS += (ev.GOAL, ev.TASK, ev.OUTCOME, ev.REWARD, ev.ROLE, ev.CONTENT)


@given(
    kind=st.sampled_from(["outcome", "action", "message", "session.started", "session.ended", "feedback"]),
    data=st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=4),
    envelope=st.dictionaries(st.sampled_from(["agent", "session", "sequence", "tenant", "time"]), ODD, max_size=1),
)
def test_what_is_read_at_once_is_read_alone_as_well(kind: Any, data: dict[str, Any], envelope: dict[str, Any]) -> None:
    raw = to_cloudevent(Event(kind, "acme", "a", "s", 0, NOW, {})) | {"data": {ev.TOOL: "bash", **data}} | envelope
    at_once, effects = read(msgspec.json.encode([raw]))
    beside, both = read(msgspec.json.encode([raw, 7]))
    assert at_once == beside
    assert len(at_once) + len(effects.dead_letters) == 1
    assert [each.reason for each in both.dead_letters] == [
        *(each.reason for each in effects.dead_letters),
        "wrong_shape",
    ]


async def test_every_event_that_arrives_is_counted_the_bad_ones_too() -> None:
    metrics = Metrics("worker")
    stage = SessionsStage(MemoryStore(), FakeClock(), metrics, 3600.0)
    await stage.process([record(msgspec.json.encode([to_cloudevent(event(0)), 7])), record(b"{")])
    name = topic("acme", "events")
    assert metrics.registry.get_sample_value("fleetlore_received_events_total", {"topic": name}) == 3


@for_each("ahead", ev.MAX_FUTURE_SECONDS - 1, ev.MAX_FUTURE_SECONDS + 1)
@for_each("taken", NOW, NOW + 1e6)
def test_the_future_begins_where_the_broker_took_the_record(taken: float, ahead: float) -> None:
    sent = encode_record([event(0)._replace(time=taken + ahead), event(1)._replace(time=taken)])
    effects = Effects()
    good = read_events(record(sent)._replace(time=taken), effects)
    late = ahead > ev.MAX_FUTURE_SECONDS
    assert [each.sequence for each in good] == ([1] if late else [0, 1])
    assert [letter.reason for letter in effects.dead_letters] == ["future_time"] * late
    for unknown in (float("inf"), 1e15):
        assert len(read_events(record(sent)._replace(time=unknown), Effects())) == 2, "no broker says when it was taken"


TOKEN = "ghp_" + "a1B2" * 9
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from([f"x {TOKEN}", "password=hunter2!x", "Bearer abcdefgh12345678", "https://u:p4ss@h/x"]),
)


def test_arguments_and_results_become_text_also_what_no_encoder_writes() -> None:
    plain = incoming(OUTCOME, tool="t", arguments={"b": 1, "a": [2]}, result=None)
    clean([plain])
    assert (plain.data.arguments, plain.data.result) == ('{"a":[2],"b":1}', "")
    nested: Any = "x"
    for _ in range(400):
        nested = [nested]
    made = incoming(OUTCOME, tool="t", arguments={"n": 2**70}, result=nested)
    clean([made])
    assert made.data.arguments == f'{{"n": "{2**70}"}}' or made.data.arguments == f'{{"n": {2**70}}}'
    assert made.data.result.startswith("[[")


@given(st.lists(st.tuples(st.sampled_from([OUTCOME, MESSAGE, STARTED]), TEXTS, TEXTS, TEXTS), max_size=8))
def test_a_batch_is_masked_as_each_of_its_texts_is(rows: list[tuple[Any, str, str, str]]) -> None:
    def made() -> list[Incoming]:
        return [
            incoming(kind, tool="t", arguments=a, result=b, error_message=c)
            if kind == OUTCOME
            else incoming(kind, **{"place" if kind == STARTED else "content": a}, goal=b, task=c)
            for kind, a, b, c in rows
        ]

    events = made()
    clean(events)
    for each, (kind, *texts) in zip(events, rows, strict=True):
        data = each.data
        masked = (
            [data.arguments, data.result, data.error_message]
            if kind == OUTCOME
            else [data.place if kind == STARTED else data.content, data.goal, data.task]
        )
        assert masked == [redact(text) for text in texts]


def test_of_one_record_only_so_much_is_looked_at_and_each_text_as_far_as_its_part_goes() -> None:
    def recorded() -> list[Incoming]:
        return [incoming(OUTCOME, tool="t", arguments=f"{n}", result=f"password=hunter2!{n} " * 300) for n in range(8)]

    first, second = recorded(), recorded()
    harmless = [incoming(OUTCOME, tool="t", result="fine " * 1600) for _ in range(8)]
    names = [incoming(OUTCOME, tool=f"password=hunter2!{n} " + "x" * 8000, result="fine") for n in range(8)]
    few = [incoming(OUTCOME, tool="t", result=f"password=hunter2!{n} " * 300) for n in range(4)]
    clean(first, second, harmless, names, few)
    for masked in (first, second):
        assert all("hunter2" not in each.data.result for each in masked)
        assert all(each.data.result.endswith("[redacted:unread]") for each in masked)
        assert all(each.data.result.count("password=[redacted") > 90 for each in masked), "none is lost whole"
        assert [each.data.arguments for each in masked] == [str(n) for n in range(8)]
    assert all(each.data.result == "fine " * 1600 for each in harmless)
    assert all("unread" not in each.data.result and "hunter2" not in each.data.result for each in few)
    assert all(each.data.tool.endswith("[redacted:unread]") and "hunter2" not in each.data.tool for each in names)


@given(
    st.sampled_from(
        ["<fleet-memory>{}</fleet-memory> ", "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"]
    ),
    st.integers(7_800, 8_300),
    st.integers(0, 400),
)
@settings(max_examples=25)
def test_no_secret_behind_the_part_that_is_checked_moves_into_it(hidden: str, size: int, gap: int) -> None:
    text = hidden.format("MIIEvQIBADAN" * 700)[:size] + hidden[hidden.index("}") + 1 :] + "." * gap
    rest = f" {TOKEN} password=hunter2!x"
    for sent in (incoming(OUTCOME, tool="t", result=text + rest), incoming(MESSAGE, content=text + rest)):
        clean([sent])
        kept = f"{sent.data.result}{sent.data.content}"
        assert TOKEN[4:20] not in kept and "hunter2" not in kept


def test_a_short_text_beside_long_ones_is_kept_whole_and_no_secret_is_cut_in_two() -> None:
    error = "KeyError: password=hunter2"
    for at in range(0, 120, 2):  # of six such texts some 4,090 characters each are looked at
        before = "password " * 440 + at * "y "
        texts = [f"{before}https://user:hunter2secret@db.example.com/{'z' * 40} {before}" for _ in range(6)]
        recorded = [incoming(OUTCOME, tool="t", result=text, error_message=error) for text in texts]
        clean(recorded)
        assert all(each.data.error_message == redact(error) for each in recorded)
        assert all("hunter2" not in each.data.result for each in recorded), at
