from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.memory.consolidation import Contributor, votes, weigh, weight

DAY = 86_400.0
HALF_LIFE = 30 * DAY

contributors = st.lists(
    st.builds(
        Contributor,
        revision=st.just((1, 0.0)),
        side=st.sampled_from(["success", "failure"]),
        agent=st.integers(0, 5),
        seen=st.floats(0, 400 * DAY),
        way=st.sampled_from([0, 1, 2, 1 << 32, (1 << 32) + 1]),
    ),
    max_size=30,
)


def of_ways(sessions: list[Contributor]) -> dict[int, tuple[int, float]]:
    return votes([(each.way, each) for each in sessions], HALF_LIFE)


def test_a_session_weighs_half_for_each_half_life() -> None:
    assert [weight(-age * HALF_LIFE, 0.0, HALF_LIFE) for age in (0, 1, 2)] == [1.0, 0.5, 0.25]
    assert weight(-15 * DAY, 0.0, HALF_LIFE) == pytest.approx(2**-0.5)


@given(contributors, st.integers())
def test_the_order_of_sessions_decides_nothing(sessions: list[Contributor], seed: int) -> None:
    other = Random(seed).sample(sessions, len(sessions))
    assert weigh(sessions, HALF_LIFE) == weigh(other, HALF_LIFE)
    assert of_ways(sessions) == of_ways(other)


@given(st.integers(1, 30))
def test_all_sessions_of_an_agent_weigh_as_much_as_one(sessions: int) -> None:
    honest = [Contributor((1, 0.0), "success", agent, 0.0) for agent in (1, 2)]
    liar = [Contributor((1, 0.0), "failure", 3, 0.0, way=number) for number in range(sessions)]
    assert weigh([*honest, *liar], HALF_LIFE) == pytest.approx({"success": 2.0, "failure": 1.0})


@given(contributors, st.lists(st.floats(0, 0.9 * DAY), min_size=30, max_size=30))
def test_hours_between_sessions_decide_nothing(sessions: list[Contributor], hours: list[float]) -> None:
    together = [each._replace(seen=1e9) for each in sessions]
    apart = [each._replace(seen=1e9 + after) for each, after in zip(sessions, hours, strict=False)]
    assert weigh(apart, HALF_LIFE) == weigh(together, HALF_LIFE)
    assert of_ways(apart) == of_ways(together)


def test_the_newer_side_wins_at_even_numbers() -> None:
    old = [Contributor((1, 0.0), "failure", 1, 0.0), Contributor((1, 0.0), "failure", 2, 0.0)]
    new = [Contributor((1, 0.0), "success", 3, 2 * HALF_LIFE)]
    assert weigh(old + new, HALF_LIFE) == {"success": 1.0, "failure": 0.5}
