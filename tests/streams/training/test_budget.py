"""How much CPU a trainer takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.training.window import CpuBudget


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), min_size=1))
def test_learning_takes_its_share_and_no_more(steps: list[tuple[float, float]]) -> None:
    """Of each step: how long nobody learned before it, and what it took, by the clock as much as of CPU."""
    share, burst = 0.25, 2.0
    budget = CpuBudget(share, burst)
    now = spent = longest = 0.0
    budget.affords(now, spent)
    for idle, took in steps:
        now += idle
        if budget.affords(now, spent):
            now, spent, longest = now + took, spent + took, max(longest, took)
    assert spent <= burst + share * now + longest + 1e-6


def test_who_has_rested_may_go_on() -> None:
    budget = CpuBudget(0.25, 2.0)
    assert budget.affords(0.0, 7.0)  # what was spent before counts for nothing
    assert not budget.affords(2.0, 10.0)
    assert not budget.affords(3.9, 10.0)
    assert budget.affords(4.1, 10.0)
