from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.lore import Pattern
from fleetlore.wire.stats import (
    HASHES,
    Window,
    failed_of,
    health,
    newcombe,
    stable_hash,
    tools_of,
    trend,
    user_hash,
    wilson,
    withheld,
)
from tests.rows import for_each


@given(st.text())
def test_a_hash_is_a_number_that_json_keeps(text: str) -> None:
    assert 0 <= stable_hash(text) < HASHES
    assert int(float(stable_hash(text))) == stable_hash(text)


texts = st.text(max_size=20)


@given(texts, texts, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_withholds_what_a_smaller_one_does_and_more(session: str, item: str, a: float, b: float) -> None:
    assert not withheld(session, item, 0.0) and withheld(session, item, 1.0)
    assert withheld(session, item, min(a, b)) <= withheld(session, item, max(a, b))


def test_the_draw_is_the_same_in_every_process_and_release() -> None:
    assert stable_hash("session") == 650_403_978_467_466


def test_two_items_are_drawn_independently() -> None:
    sessions = [f"s{number}" for number in range(4000)]
    both = sum(withheld(each, "a", 0.5) and withheld(each, "b", 0.5) for each in sessions) / len(sessions)
    assert abs(both - 0.25) < 0.03


@for_each("name", "José Álvarez", "Zoë", "김민준", "ファイル", "Ａｎｎａ", "plain")
def test_a_user_is_one_in_every_normal_form(name: str) -> None:
    assert len({user_hash(normalize(form, name)) for form in ("NFC", "NFD")}) == 1
    assert user_hash(name) != user_hash(f"{name}.")


def test_the_difference_of_two_rates_is_newcombes() -> None:
    # Newcombe 1998, table II, cases (a) and (h) by method 10.
    assert newcombe((70, 56), (80, 48)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe((10, 10), (10, 0)) == pytest.approx((0.6075, 1.0), abs=5e-5)


def test_nothing_is_known_of_a_rate_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(1, 1)
    assert 0.2 < low < 0.3 and high == 1.0


def row(level: Any, tool: str = "sql", **fields: Any) -> Pattern:
    return Pattern(id=f"{level}{tool}{fields}", level=level, tenant="acme", tool=tool, **fields)


TOOL = row("tool", calls=300, failures=90, hours=((102, 100, 60), (101, 100, 20), (99, 100, 10)))
ERROR = row("family", error_class="no_table", failures=50, hours=((102, 40, 40), (101, 10, 10)))


def test_a_window_counts_its_hours_and_compares_them_with_those_before() -> None:
    [whole] = health([TOOL, ERROR])
    assert (whole.calls, whole.failures, whole.trend, whole.errors) == (300, 90, "unknown", (("no_table", 50),))
    [hour] = health([TOOL, ERROR], window=Window("hours", 1))
    assert (hour.calls, hour.failures, hour.trend, hour.errors) == (100, 60, "worse", (("no_table", 40),))
    [two] = health([TOOL, ERROR], window=Window("hours", 2))
    assert (two.calls, two.failures, two.trend) == (200, 80, "worse")
    assert health([TOOL], window=Window("days", 1)) == []


def test_by_error_and_tenant() -> None:
    other = row("tool", tool="http", calls=100, failures=0)
    [error] = health([TOOL, ERROR], "error", Window("hours", 1))
    assert (error.tool, error.calls, error.failures) == ("sql: no_table", 100, 40)
    [tenant] = health([TOOL, other], "tenant")
    assert (tenant.tool, tenant.calls, tenant.failures) == ("acme", 400, 90)
    assert health([], "tenant") == []


@for_each(
    "now, before, expected",
    ((0, 0), (9, 9), "unknown"),
    ((9, 9), (0, 0), "unknown"),
    ((100, 60), (100, 20), "worse"),
    ((100, 20), (100, 60), "better"),
    ((100, 21), (100, 20), "same"),
    ((1, 1), (1, 0), "same"),
)
def test_a_trend_needs_more_than_chance(now: tuple[int, int], before: tuple[int, int], expected: str) -> None:
    assert trend(now, before) == expected


def test_estimates_are_called_so_where_they_are_counted() -> None:
    tool = row("tool", calls=300, failures=90, hours=((102, 100, 60),), days=((4, 300, 90),), estimated=("hours",))
    error = row("family", error_class="no_table", failures=50, hours=((102, 40, 40),), estimated=("all",))
    assert [each.estimated for each in health([tool, error])] == [False]
    assert [each.estimated for each in health([tool, error], window=Window("hours", 1))] == [True]
    assert [each.estimated for each in health([tool, error], "error")] == [True]


def test_a_failure_has_its_share_of_the_calls_of_its_tool() -> None:
    tool, error = row("tool", calls=72, failures=42), row("class", error_class="no_table", calls=42, failures=42)
    assert tools_of([error, tool]) == {"sql": tool}
    assert failed_of(error, tool) == failed_of(tool, tool) == "42 of 72"
    assert failed_of(error, None) == "42"
    busy = row("tool", calls=7_200, failures=42, estimated=("all",))
    assert failed_of(error, busy) == "42 of ≈7,200"
    loop = row("class", error_class="loop", calls=6)
    assert failed_of(loop, tool) == "0 of 6"
