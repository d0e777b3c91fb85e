from __future__ import annotations

import pytest

from benchmarks.backtest.advice.literals import literals


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("WHERE name = 'Los Angeles'", {"los angeles"}),
        ('{"user_id": "mei_kim_4552", "zip": 98107}', {"mei_kim_4552", "98107"}),
        ("write to mei@mail.com or /var/log/app", {"mei@mail.com", "/var/log/app"}),
        ("order #W123 of 7", {"w123"}),
        ("known failure [#1a2b3c4d] (41 of 43 calls in 12 sessions, 80% to 91%)", set()),
        ("SELECT car_makers.id FROM car_makers", set()),
        ('print("<value>", "to <city>"), {"id":"<order id>"}', {"to <city>"}),
        ("<fleet-memory 7d027b43>\nsee `id`\n</fleet-memory 7d027b43>", set()),
    ],
)
def test_literals_are_what_one_session_is_about(text: str, found: set[str]) -> None:
    assert literals(text) == found
