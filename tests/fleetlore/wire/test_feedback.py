"""Which of two corrections of one session counts."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.wire.trajectory import Feedback

GIVEN = Feedback(session="s", label="success", time=2.0, by="reviewer")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"time": 1.0}, "the newer one counts"),
        ({"time": 9.0, "claimed": True}, "who may write events alone outranks no reviewer, however late"),
        ({"by": "a reviewer"}, "of two at one time it is the same one in any order"),
    ],
)
def test_one_of_two_counts_in_any_order(changes: dict[str, Any], why: str) -> None:
    for one, other in permutations([GIVEN, replace(GIVEN, **changes)]):
        assert one.newest(other) == GIVEN, why


def test_of_two_that_one_person_gave_at_one_time_the_failure_counts() -> None:
    failed = replace(GIVEN, label="failure")
    assert GIVEN.newest(failed) == failed.newest(GIVEN) == failed
