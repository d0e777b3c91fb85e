"""What a dead letter keeps."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from sinks.dead_letters import MAX_DETAIL, MAX_VALUE_BYTES, dead_letter_headers, dead_letter_value


def headers(detail: str, value: bytes) -> dict[str, bytes]:
    made = dead_letter_headers(
        topic="fleetlore.acme.events",
        partition=3,
        offset=12,
        stage="sessions",
        reason="not_json",
        detail=detail,
        value=value,
    )
    assert len(made) == len(dict(made))
    return dict(made)


def test_the_headers_name_the_place_the_stage_and_the_reason() -> None:
    assert headers("unexpected end", b"{") == {
        "dlq.topic": b"fleetlore.acme.events",
        "dlq.partition": b"3",
        "dlq.offset": b"12",
        "dlq.stage": b"sessions",
        "dlq.reason": b"not_json",
        "dlq.detail": b"unexpected end",
        "dlq.bytes": b"1",
        "dlq.sha256": sha256(b"{").hexdigest().encode(),
    }


@given(st.text(st.characters(), max_size=2000), st.binary(max_size=100))
def test_any_detail_fits_into_a_header(detail: str, value: bytes) -> None:
    made = headers(detail, value)
    assert len(made["dlq.detail"].decode()) <= MAX_DETAIL
    assert dead_letter_value(value) == value


def test_a_large_value_is_cut_and_its_size_and_hash_tell_of_the_whole() -> None:
    value = b"x" * (MAX_VALUE_BYTES + 5)
    assert dead_letter_value(value) == value[:MAX_VALUE_BYTES]
    assert headers("", value)["dlq.bytes"] == str(len(value)).encode()
    assert headers("", value)["dlq.sha256"] == sha256(value).hexdigest().encode()
