"""Whatever the bytes are: a value, or one kind of error that every reader expects."""

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.limits import refusals
from fleetlore.wire.decode import (
    MAX_VALUES,
    json_reader,
    mended_json,
    msgpack_reader,
    read_json,
    rewritten,
    unpacked,
    well_formed,
)
from fleetlore.wire.lore import Decision, MemoryItem, Pattern
from fleetlore.wire.trajectory import Judgment, Trajectory
from streams.stage.operators import Erased
from tests.rows import for_each

ODD = [b"", b"[" * 100_000, b'{"a":' * 100_000, b'"\xff"', b'"\\ud800"', b"\xef\xbb\xbf{}", b"1e9999"]
KINDS = (Pattern, MemoryItem, Decision, Judgment, Trajectory)
READERS: list[Callable[[bytes], Any]] = [
    json_reader(dict[str, Any]),
    msgpack_reader(dict[str, Any]),
    *(kind.from_json for kind in KINDS),
]


@for_each("number", *range(len(ODD)))
@for_each("read", *READERS)
def test_what_cannot_be_read_raises_one_kind_of_error(read: Callable[[bytes], Any], number: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(ODD[number])


def test_an_operators_record_that_is_nested_too_deep_is_counted() -> None:
    before = refusals().get("unreadable_erasures", 0)
    Erased().take("acme", b'{"time": 1, "more": ' + b"[" * 100_000)
    assert refusals()["unreadable_erasures"] == before + 1


@for_each("field", "agents", "support", "last_seen")
def test_lore_with_a_number_beyond_every_count_is_refused(field: str) -> None:
    item: dict[str, Any] = {"id": "i", "tenant": "t", "kind": "recovery", "title": "", "description": ""}
    item |= {"content": "", "when": "", field: 10**400 if field != "last_seen" else 1e300}
    with pytest.raises(msgspec.DecodeError):
        MemoryItem.from_json(str(item).replace("'", '"'))


odd_texts = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(["\ud83d", "\udc00x", "\x00", "\ufeff"])
odd_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**90), 2**90) | st.floats() | odd_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_texts, inner, max_size=4),
    max_leaves=12,
)


def expected(value: Any) -> Any:
    """A value as it is to be read: numbers that JSON has not are texts, and texts are valid Unicode."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, dict):
        return {well_formed(name): expected(member) for name, member in value.items()}
    return [expected(member) for member in value] if isinstance(value, list) else well_formed(value)


@given(odd_values, st.booleans(), st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_odd_json_of_others_is_read_with_nothing_lost(value: Any, ascii_only: bool, mark: bytes) -> None:
    raw = mark + json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = read_json(raw) if ascii_only else read_json(raw.decode("utf-8-sig", "surrogatepass"))
    assert found == expected(value)
    msgspec.json.decode(mended_json(raw))
    msgspec.json.encode(found)


@for_each("raw", b"", b"{", b"[1,]", b"[" * 100_000, b"{'a': 1}")
def test_what_is_no_json_is_said_and_stays(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(raw)
    assert mended_json(raw) == raw


@for_each("form", "utf-8", "utf-16-le")
def test_a_text_of_so_many_values_that_they_fill_memory_is_not_read(form: str) -> None:
    text = "[" + "[]," * MAX_VALUES + "[]]"
    for raw in (text, text.encode(form)):
        with pytest.raises(msgspec.DecodeError, match="more than"):
            read_json(raw)


def test_numbers_keep_all_their_digits() -> None:
    digits = "7" * 5000
    assert read_json(b"[18446744073709551616, 1e999, %b]" % digits.encode()) == [2**64, "1e999", digits]


def test_only_what_is_changed_is_written_anew() -> None:
    raw = b'{"id": 18446744073709551617, "n": 1.10, "e": 1E5, "s": "\\u00e9\\/", "m": ["a"], "x": {"y":  2}}'
    changed = read_json(raw)
    changed["m"].append("b")
    changed["new"] = True
    found = rewritten(raw, changed)
    for kept in (b"18446744073709551617", b"1.10", b"1E5", b'"\\u00e9\\/"', b'{"y":  2}'):
        assert kept in found
    assert json.loads(found)["m"] == ["a", "b"] and json.loads(found)["new"] is True


@given(odd_values, odd_texts.filter(lambda key: key not in ("kept", "list")))
def test_nothing_else_changes_whatever_it_is(value: Any, key: str) -> None:
    raw = json.dumps({"kept": value, key: 1, "list": [value, {"text": "a"}]}).encode()
    changed = read_json(raw)
    changed["list"][1]["text"] += "b"
    changed["list"].append("c")
    again = json.dumps(json.loads(rewritten(raw, changed)))  # NaN equals nothing but its text
    assert again == json.dumps({"kept": value, key: 1, "list": [value, {"text": "ab"}, "c"]})
    assert rewritten(raw, read_json(raw)) in (raw, json.dumps(json.loads(raw), separators=(",", ":")).encode())


@for_each("odd", b"\xff", b"\x1f\x8b", b"\xed\xa0\x80", b"\\ud800", b"\x01")
@for_each("raw", b'{"%b": [], "t": "a"}', b'{"s": "%b", "t": "a"}', b'\xef\xbb\xbf{"s": "%b", "t": "a"}')
def test_a_text_that_strict_readers_refuse_is_changed_too(raw: bytes, odd: bytes) -> None:
    given = raw.replace(b"%b", odd)
    changed = read_json(given) | {"t": "ab", "new": 1}
    assert read_json(rewritten(given, changed)) == changed


def test_a_text_of_any_depth_comes_back() -> None:
    for depth in range(1, 1_200, 7):
        given = b'{"deep": ' + b"[" * depth + b"]" * depth + b', "odd": NaN}'
        try:
            changed = read_json(given) | {"odd": "b"}
        except ValueError:
            continue
        found = rewritten(given, changed)
        assert found == given or json.loads(found)["odd"] == "b"


def test_a_gzip_body_has_a_bounded_number_of_members() -> None:
    empty, last = gzip.compress(b""), gzip.compress(b"{}")
    assert unpacked(empty * 63 + last + b"\0\0", "gzip", 100) == b"{}"
    with pytest.raises(ValueError, match="members"):
        unpacked(empty * 64 + last, "gzip", 100)
