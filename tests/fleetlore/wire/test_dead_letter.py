"""A dead letter: what is written is what is read, cut where it must be and said so."""

from dataclasses import dataclass
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.dead_letter import (
    MAX_DETAIL,
    MAX_HEADERS_BYTES,
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    REDRIVEN,
    DeadLetterRecord,
    Mark,
    RawRecord,
    mark,
    read_dead_letter,
)
from tests.build import letter

TO = "fleetlore.acme.dead-letters"


@dataclass
class Consumed:
    """A record as aiokafka gives it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def read(posted: RawRecord, partition: int = 1, offset: int = 7) -> DeadLetterRecord:
    consumed = Consumed(partition, offset, 1_700_000_000_500, posted.key, posted.value, tuple(posted.headers))
    found = read_dead_letter(consumed)
    assert isinstance(found, DeadLetterRecord)
    return found


def test_what_is_written_is_what_is_read() -> None:
    posted = letter()
    assert (posted.topic, posted.partition) == (TO, 3)
    found = read(posted)
    assert (found.place, found.time, found.partition, found.offset) == ("1:7", 1_700_000_000.5, 3, 12)
    assert (found.topic, found.stage, found.reason) == ("fleetlore.acme.events", "sessions", "not_json")
    assert (found.key, found.value, found.headers) == (b"k", b"{", (("content-type", b"text/plain"),))
    assert (found.size, found.sha256, found.cut, found.redriven) == (1, sha256(b"{").hexdigest(), frozenset(), 0)
    assert found.detail == "unexpected end"


@given(
    st.text(st.characters(), max_size=2000),
    st.binary(max_size=100),
    st.none() | st.binary(max_size=20),
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), st.binary(max_size=8), max_size=4),
)
def test_any_text_and_any_bytes_fit(detail: str, value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
    found = read(letter(detail=detail, value=value, key=key, headers=headers))
    assert len(found.detail) <= MAX_DETAIL
    assert (found.value, found.key) == (value, key)
    assert dict(found.headers) == {name: said for name, said in headers.items() if not name.startswith("dlq.")}


def test_one_event_of_a_record_does_not_take_the_headers_of_the_record() -> None:
    assert read(letter(whole=False)).headers == ()


def test_what_is_too_large_is_cut_and_its_size_and_hash_tell_of_the_whole() -> None:
    value, key = b"x" * (MAX_VALUE_BYTES + 5), b"k" * (MAX_KEY_BYTES + 1)
    found = read(letter(value=value, key=key, headers={"h": b"h" * MAX_HEADERS_BYTES}))
    assert found.cut == {"value", "key", "headers"}
    assert (found.value, found.key, found.headers) == (value[:MAX_VALUE_BYTES], key[:MAX_KEY_BYTES], ())
    assert (found.size, found.sha256) == (len(value), sha256(value).hexdigest())
    posted = letter(value=value, key=key, headers={"h": b"h" * (MAX_HEADERS_BYTES - 1)})
    said = sum(len(name) + len(content) for name, content in posted.headers)
    assert len(posted.value) + len(posted.key or b"") + said < 500_000, "well below what a broker takes"


def test_how_often_it_was_sent_back_travels_with_the_record() -> None:
    assert read(letter(headers={REDRIVEN: b"2", "dlq.topic": b"forged"})).redriven == 2
    assert read(letter(headers={REDRIVEN: b"2", "dlq.topic": b"forged"})).topic == "fleetlore.acme.events"
    for nonsense in (b"", b"-1", b"x", "٣".encode(), b"9" * 5000):
        assert read(letter(headers={REDRIVEN: nonsense})).redriven == 0


def test_a_mark_goes_to_the_letter_it_names() -> None:
    posted = mark(read(letter(), 2, 40), TO)
    assert (posted.topic, posted.partition) == (TO, 2)
    assert read_dead_letter(Consumed(2, 41, 0, None, b"", tuple(posted.headers))) == Mark("2:40")
