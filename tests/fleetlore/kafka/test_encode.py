from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.cloudevents import to_cloudevent
from fleetlore.kafka.encode import encode, encode_event, mask, record
from fleetlore.redact.redact import redact_name
from fleetlore.redact.values import redact_value
from fleetlore.wire.events import ARGUMENTS, CONTENT, MAX_BYTES, MAX_ID_LENGTH, RESULT, TOOL, Event, Kind
from tests.rows import for_each


def outcome(session: str, sequence: int, tenant: str = "default", **data: Any) -> Event:
    return Event("outcome", tenant, "agent", session, sequence, 1_767_225_600.0, {TOOL: "sql", **data})


def masked(events: list[Event]) -> list[bytes]:
    """All of them at once, complete."""
    return [record([event])[1:-1] for event in mask([encode(event) for event in events])]


kinds = st.sampled_from(get_args(Kind))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9)


@given(
    st.lists(st.tuples(kinds, names, names, names, st.integers(0, 2**63), st.floats(0, 4e9)), min_size=1, max_size=9)
)
def test_a_record_is_what_its_events_are_as_cloudevents(heads: list[tuple[Kind, str, str, str, int, float]]) -> None:
    events = [Event(*head, {TOOL: "sql"}) for head in heads]
    encoded = mask([encode(event) for event in events])
    value = record(encoded)
    assert value == b"[" + b",".join(orjson.dumps(to_cloudevent(event)) for event in events) + b"]"
    assert len(value) < sum(event[0] for event in encoded)


@for_each("time", float("nan"), float("inf"), -1.0, 1e12)
def test_a_time_that_is_none_is_refused(time: float) -> None:
    with pytest.raises(ValueError, match="between the years"):
        encode(outcome("s", 1)._replace(time=time))


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


@for_each(
    "value, written",
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
    ("\ud800", "\ufffd"),
    ({"pass\u0077ord": "hunter22"}, {"password": "[redacted:password]"}),
)
def test_what_is_no_json_is_written_all_the_same(value: Any, written: Any) -> None:
    for name in (ARGUMENTS, RESULT):
        event = Event("outcome", "default", "agent", "s", 1, 0.0, {TOOL: "sql", name: value})
        assert orjson.loads(encode_event(event))["data"] == {TOOL: "sql", name: written}


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


@given(st.lists(json_values, min_size=1, max_size=9))
@example([["PASSWORT", "000"]])
@example([["hunter2secret9", "00000000"]])
def test_many_at_once_are_masked_as_each_alone(values: list[Any]) -> None:
    events = [outcome("s", number, **{RESULT: value}) for number, value in enumerate(values)]
    expected = [orjson.dumps(to_cloudevent(event._replace(data=redact_value(event.data)))) for event in events]
    assert masked(events) == expected == [encode_event(event) for event in events]
    assert record(mask([encode(event) for event in events])) == b"[" + b",".join(expected) + b"]"


@given(
    st.integers(0, 69),
    st.sampled_from(["password=hunter22", "gh" + "p_" + "a1B2" * 9, "Authorization: Basic dXNlcjpwYXNz"]),
)
def test_a_secret_is_found_wherever_it_lies_in_a_batch(place: int, secret: str) -> None:
    events = [outcome("s", n, **{RESULT: "x" * (97 * n % 1500)}) for n in range(70)]
    events[place].data[RESULT] += " " + secret
    values = masked(events)
    assert secret.encode() not in b"".join(values)
    assert [n for n, value in enumerate(values) if b"[redacted:" in value] == [place]


def test_names_of_an_event_are_masked_and_stay_names_that_a_worker_takes() -> None:
    token = "gh" + "p_" + "a1B2" * 9
    event = Event("message", "default", f"agent {token}", f"run password=hunter22 {token}", 0, 0.0, {})
    value = encode_event(event)
    assert token.encode() not in value and b"hunter22" not in value
    assert value.count(b"redacted-") == 3  # of the source too
    name = "password=hunter22 " * 14  # 252 characters, and more once they are masked
    read = orjson.loads(encode_event(outcome("s", 1)._replace(agent=name, session=name)))
    assert "hunter22" not in str(read)
    assert len(read["agent"]) <= MAX_ID_LENGTH and len(read["session"]) <= MAX_ID_LENGTH


def test_the_names_of_one_session_are_masked_among_many() -> None:
    secret = "run password=hunter22"
    events = [outcome(secret if n % 7 == 0 else f"s{n}", n) for n in range(20)]
    encoded = mask([encode(event) for event in events])
    value = record(encoded)
    sessions = [event["session"] for event in orjson.loads(value)]
    assert sessions == [redact_name(secret) if n % 7 == 0 else event.session for n, event in enumerate(events)]
    assert value == b"[" + b",".join(encode_event(event) for event in events) + b"]"
    assert len(value) < sum(event[0] for event in encoded)


def test_an_event_that_is_too_large_is_masked_and_cut() -> None:
    # Each mask is longer than what it hides.
    encoded = encode(outcome("s", 1, **{RESULT: "password=abcd1\n" * 20_000}))
    masked = mask([encoded])
    value = record(masked)
    assert len(value) <= masked[0][0] < MAX_BYTES
    assert b"abcd1" not in value
    assert b"characters cut]" in value


@for_each(
    "data",
    {RESULT: "x" * 1_000_000},
    {RESULT: "\x00" * 1_000_000},  # six bytes each in JSON
    {RESULT: "é😀" * 500_000},
    {RESULT: [["x" * 1000] * 100] * 100},
    {ARGUMENTS: {f"key{n}": "v" * 100 for n in range(10_000)}, RESULT: "x" * 1_000_000, CONTENT: "x" * 1_000_000},
    {ARGUMENTS: {"k" * 400_000: 1}},
    {RESULT: "\ud800 lone surrogate"},
)
def test_an_event_always_fits_a_record(data: dict[str, Any]) -> None:
    value = encode_event(outcome("s", 1, **data))
    assert len(value) + 2 <= MAX_BYTES
    assert orjson.loads(value)["data"][TOOL].startswith("s")
