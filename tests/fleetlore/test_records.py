"""Records: one event or many, from our emitter or from any CloudEvents client."""

from __future__ import annotations

import orjson
import pytest

from fleetlore import events as ev
from fleetlore.errors import InvalidEvent
from fleetlore.events import Event, parse_event, to_cloudevent
from fleetlore.records import (
    BATCH_HEADERS,
    BATCH_TYPE,
    CONTENT_TYPE,
    EVENT_TYPE,
    MAX_EVENT_BYTES,
    decode_record,
    encode_record,
)

NOW = 1_767_225_600.0


def event(sequence: int, text: str = "ok") -> Event:
    return Event("outcome", "acme", "a", "s", sequence, NOW, {ev.TOOL: "bash", ev.RESULT: text})


def test_a_batch_reads_back_as_the_events_it_was_made_of() -> None:
    sent = [event(number) for number in range(5)]
    read = [parse_event(raw, "acme", NOW) for raw in decode_record(encode_record(sent), dict(BATCH_HEADERS))]
    assert read == sent
    assert BATCH_HEADERS == [(CONTENT_TYPE, BATCH_TYPE)]


@pytest.mark.parametrize("headers", [None, {}, {CONTENT_TYPE: EVENT_TYPE}, {CONTENT_TYPE: b"text/plain"}])
def test_a_single_structured_event_is_read_whatever_its_content_type(headers: dict[str, bytes] | None) -> None:
    [raw] = decode_record(orjson.dumps(to_cloudevent(event(3))), headers)
    assert parse_event(raw, "acme", NOW) == event(3)


def test_binary_mode_has_the_attributes_in_headers() -> None:
    attributes = to_cloudevent(event(3))
    data = attributes.pop("data")
    headers = {f"ce_{name}": str(value).encode() for name, value in attributes.items()}
    [raw] = decode_record(orjson.dumps(data), {**headers, CONTENT_TYPE: b"application/json"})
    assert parse_event(raw, "acme", NOW) == event(3)


@pytest.mark.parametrize("sequence", [b"", b"three", b"-1", b"\xff", "³".encode(), "٣".encode()])
def test_a_bad_sequence_in_binary_mode_is_refused_and_breaks_nothing(sequence: bytes) -> None:
    headers = {f"ce_{name}": str(value).encode() for name, value in to_cloudevent(event(3)).items() if name != "data"}
    [raw] = decode_record(b'{"gen_ai.tool.name": "bash"}', {**headers, "ce_sequence": sequence})
    try:
        parse_event(raw, "acme", NOW)
    except InvalidEvent as refused:
        assert refused.reason == "bad_field"


def test_an_array_in_binary_mode_is_the_data_of_one_event_and_not_a_batch() -> None:
    [raw] = decode_record(b"[1, 2]", {"ce_specversion": b"1.0"})
    assert raw == {"specversion": "1.0", "data": [1, 2]}


def test_an_element_that_is_too_large_leaves_those_beside_it_alone() -> None:
    good, large, also_good = decode_record(encode_record([event(0), event(1, "x" * MAX_EVENT_BYTES), event(2)]))
    assert isinstance(large, InvalidEvent)
    assert large.reason == "too_large"
    assert [parse_event(raw, "acme", NOW).sequence for raw in (good, also_good)] == [0, 2]


def test_a_large_batch_of_small_events_is_not_too_large() -> None:
    sent = [event(number, "x" * 9_000) for number in range(64)]
    assert not any(isinstance(raw, InvalidEvent) for raw in decode_record(encode_record(sent)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"hello", "not_json"),
        (b"{", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[NaN]", "not_json"),
        (b"[" * 100_000, "not_json"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_as_a_whole(value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        decode_record(value)
    assert refused.value.reason == reason


@pytest.mark.parametrize(("value", "count"), [(b"[]", 0), (b"{}", 1), (b"7", 1), (b"[1, {}]", 2), (b"null", 1)])
def test_json_of_another_shape_is_left_to_the_check_of_each_event(value: bytes, count: int) -> None:
    assert len(decode_record(value)) == count
