from __future__ import annotations

from bisect import bisect

from benchmarks.significance import GRID, Count, form, rounded
from fleetlore.wire.lore import Pattern
from tests.build import memory_item


def pattern(calls: int, last_seen: float = 100.0) -> Pattern:
    return Pattern(
        id="p", level="tool", tenant="t", tool="sql", calls=calls, failures=calls // 2, last_seen=last_seen,
        hours=((7, calls, 1),), by_agent=(("a", calls, 2),), transient=True,
    )  # fmt: skip


def test_a_form_is_of_the_state_alone_and_at_most_a_tenth_below_it() -> None:
    assert GRID[:14] == [*range(12), 13, 15]
    for calls in range(5_000):
        once = form(pattern(calls))
        assert form(once) == once and isinstance(once, Pattern)
        assert 0 <= calls - once.calls <= 0.1 * calls
        assert once.hours == ((7, once.calls, 1),) and once.by_agent == (("a", once.calls, 2),)
    assert rounded(True) is True and form(memory_item("i", support=101)).support <= 101


def test_what_changes_little_goes_out_seldom_and_what_is_new_at_once() -> None:
    count = Count()
    for number in range(1, 1_001):
        count.take(Pattern, "p", pattern(number, number / 10).to_json(), number / 10)
    count.take(Pattern, "p", None, 100.1)
    assert count.plain == 1_001
    assert 50 < count.significant <= 2 * bisect(GRID, 1_000), "each of two figures in turn"
    assert count.limited == 2
    count.take(Pattern, "q", pattern(1).to_json(), 100.2)
    assert (count.significant, count.limited) == (count.significant, 3)
