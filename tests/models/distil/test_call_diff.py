from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.distil.call_diff import distance, in_words


@pytest.mark.parametrize(
    ("failed", "worked", "words"),
    [
        ("SELECT a FROM cars", "SELECT a FROM cars_data", "`cars` → `cars_data`"),
        ("tail -n 3 -a file", "tail -n 3 -v file", "`-a` → `-v`"),
        ("if a == b: print(1)", "if a != b: print(1)", "`==` → `!=`"),
        ("print(log(3))", "from math import log\nprint(log(3))", "add `from math import log`"),
        ("SELECT a FROM b LIMIT 1 HAVING c", "SELECT a FROM b LIMIT 1", "drop `HAVING c`"),
        ("SELECT x FROM a JOIN b", "SELECT x FROM c JOIN d", "`a` → `c`, `b` → `d`"),
        ('{"a": "x", "b": 1}', '{"a": "x", "b": 2}', "`b=1` → `b=2`"),
        ('{"a": "x"}', '{"a": "x", "b": true}', "add `b=true`"),
        ('{"a": "x", "b": null}', '{"a": "x"}', "drop `b=null`"),
        ('{"flag": "--fast"}', '{"flag": "--safe"}', "`flag=--fast` → `flag=--safe`"),
    ],
)
def test_a_change_in_words(failed: str, worked: str, words: str) -> None:
    assert (distance(failed, worked) or 0) > 0
    assert in_words(failed, worked) == words


@pytest.mark.parametrize(
    ("failed", "worked"),
    [
        ("SELECT a FROM cars", "SHOW TABLES"),
        ("get order 17", "get order 18"),
        ('{"order_id": "#W123"}', '{"order_id": "#W456"}'),
        ('{"id": 1}', '{"id": 2}'),
        ('{"a": "x", "b": "y", "c": "z"}', '{"a": "u", "b": "v", "c": "z"}'),
        ('{"a": 1}', '{"b": 1}'),
        ("one two three", ""),
    ],
)
def test_another_call_is_no_repair(failed: str, worked: str) -> None:
    assert distance(failed, worked) is None


def test_the_same_call_is_a_change_of_nothing() -> None:
    assert distance("x", "x") == distance('{"a":1,"b":2}', '{"b": 2, "a": 1}') == 0


def test_the_nearer_call_has_the_smaller_distance() -> None:
    failed = "SELECT a FROM cars WHERE b = c"
    near, far = "SELECT a FROM cars_data WHERE b = c", "SELECT a FROM cars_data WHERE b IN (c)"
    assert (distance(failed, near) or 0) < (distance(failed, far) or 0)


def test_a_change_that_is_too_long_to_say_must_be_the_smaller_part() -> None:
    words = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]
    few = [word.upper() if place in (1, 5, 9, 13) else word for place, word in enumerate(words)]
    many = [word.upper() if place % 5 in (1, 3) else word for place, word in enumerate(words)]
    assert in_words(" ".join(words), " ".join(few)) == ""
    assert in_words(" ".join(words), " ".join(many)) is None


TEXTS = st.one_of(
    st.text(max_size=60), st.sampled_from(["{", "{}", '{"a": NaN}', '{"a": {"b": [1]}}', "[1]", "\ud800", "a b c"])
)


@given(TEXTS, TEXTS)
def test_any_two_texts_can_be_compared(failed: str, worked: str) -> None:
    size = distance(failed, worked)
    assert size == distance(worked, failed)
    assert failed != worked or size == 0
    assert isinstance(in_words(failed, worked), str | None)
