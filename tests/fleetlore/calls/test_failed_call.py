from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.context import hash_of
from fleetlore.calls.failed_call import MAX_WORDS, FailureWords, words
from fleetlore.fingerprint.fingerprint import failure_of

_ERROR = "Traceback (most recent call last):\n  File …\nNameError: name 'sqrt' is not defined"


def of(goal: str = "the root of a number", call: str = "x = sqrt(4)\nprint(x)", error: str = _ERROR) -> FailureWords:
    return FailureWords.of(goal, call, error, failure_of("python", call, None, error))


def test_what_the_error_names_comes_first_of_the_call() -> None:
    found = of()
    assert found.call[0] == hash_of("sqrt")
    assert found.names == (hash_of("sqrt"),)
    assert hash_of("traceback") not in found.error  # its last line says what was raised


def test_the_kind_is_the_same_for_other_names() -> None:
    other = of(call="print(log(2))", error="NameError: name 'log' is not defined")
    assert other.kind == of().kind
    assert other.names != of().names


def test_a_word_with_a_digit_may_be_an_id_and_is_left_out() -> None:
    assert words("cancel W2378 of user_42: e4.id math.sqrt log10(x)") == ("cancel", "math.sqrt")


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=200))
def test_the_text_says_the_same(goal: str, call: str, error: str) -> None:
    found = of(goal, call, error)
    assert FailureWords.from_text(found.to_text()) == found
    assert all(len(part) <= MAX_WORDS for part in found.texts)


@given(st.text(max_size=80))
def test_any_other_text_is_none(text: str) -> None:
    found = FailureWords.from_text(text)
    assert found is None or FailureWords.from_text(found.to_text()) == found
    assert FailureWords.from_text("AAAA.AAAA.AAAA.AAAA.!") is None
