from __future__ import annotations

from fleetlore.calls.failed_call import words


def test_a_word_with_a_digit_may_be_an_id_and_is_left_out() -> None:
    assert words("cancel W2378 of user_42: e4.id math.sqrt log10(x)") == ("cancel", "math.sqrt")
