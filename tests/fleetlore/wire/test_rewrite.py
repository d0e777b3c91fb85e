"""A change of somebody else's JSON leaves all other bytes as they were."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given

from fleetlore.wire.decode import read_json, rewritten
from tests.fleetlore.wire.test_decode import odd_texts, odd_values
from tests.rows import for_each

ODD = b'{"id": 18446744073709551617, "n": 1.10, "e": 1E5, "s": "\\u00e9\\/", "m": ["a"], "x": {"y":  2}}'


def test_only_what_is_changed_is_written_anew() -> None:
    changed = read_json(ODD)
    changed["m"].append("b")
    changed["new"] = True
    found = rewritten(ODD, changed)
    for kept in (b"18446744073709551617", b"1.10", b"1E5", b'"\\u00e9\\/"', b'{"y":  2}'):
        assert kept in found
    assert json.loads(found)["m"] == ["a", "b"] and json.loads(found)["new"] is True


@for_each("end", ["front", "back"])
def test_elements_are_added_at_either_end_of_a_list(end: str) -> None:
    raw = b'{"messages": [{"n": 1.0, "c": "a"}, {"n": 2.0}]}'
    changed = read_json(raw)
    changed["messages"].insert(0 if end == "front" else 2, {"new": 1})
    changed["messages"][2 if end == "front" else 1]["c"] = "b"
    assert json.loads(rewritten(raw, changed)) == changed
    assert rewritten(raw, changed).count(b".0") == 2


@given(odd_values, odd_texts.filter(lambda key: key not in ("kept", "list")))
def test_nothing_else_changes_whatever_it_is(value: Any, key: str) -> None:
    raw = json.dumps({"kept": value, key: 1, "list": [value, {"text": "a"}]}).encode()
    changed = read_json(raw)
    changed["list"][1]["text"] += "b"
    changed["list"].append("c")
    again = json.dumps(json.loads(rewritten(raw, changed)))  # NaN equals nothing but its text
    assert again == json.dumps({"kept": value, key: 1, "list": [value, {"text": "ab"}, "c"]})
    assert rewritten(raw, read_json(raw)) in (raw, json.dumps(json.loads(raw), separators=(",", ":")).encode())


@for_each("odd", [b"\xff", b"\x1f\x8b", b"\xed\xa0\x80", b"\\ud800", b"\x01"])
@for_each("raw", [b'{"%b": [], "t": "a"}', b'{"s": "%b", "t": "a"}', b'\xef\xbb\xbf{"s": "%b", "t": "a"}'])
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
