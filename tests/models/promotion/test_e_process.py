from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.promotion.canary import log_wealth

gains = st.lists(st.floats(-1, 1), max_size=40)


@given(gains, st.randoms())
def test_order_does_not_matter(values: list[float], chance: random.Random) -> None:
    shuffled = list(values)
    chance.shuffle(shuffled)
    assert log_wealth(shuffled) == pytest.approx(log_wealth(values), abs=1e-9)


def test_without_data_there_is_no_evidence() -> None:
    assert log_wealth([]) == 0


def test_a_steady_gain_is_soon_evident_and_a_loss_never() -> None:
    assert log_wealth([0.5] * 20) > math.log(100)
    assert log_wealth([-0.5] * 20) < 0


def test_a_thousand_null_updates_looked_at_eight_times_each_promote_at_most_one_in_twenty() -> None:
    """Each is no better than what runs; it stands before the gate again and again as held-out sessions come in."""
    chance = np.random.default_rng(0)
    promoted = 0
    for _ in range(1000):
        # Most sessions do not differ; those that do, differ a lot: the kindest case for a false alarm.
        values = np.where(chance.random(400) < 0.3, chance.choice([-1.0, 1.0], 400), chance.normal(0, 0.1, 400)).clip(
            -1, 1
        )
        promoted += any(log_wealth(values[: 50 * look]) >= -math.log(0.05) for look in range(1, 9))
    assert promoted <= 50


def test_a_real_gain_is_promoted() -> None:
    chance = np.random.default_rng(0)
    found = [log_wealth(chance.normal(0.25, 0.5, 200).clip(-1, 1)) >= -math.log(0.05) for _ in range(100)]
    assert sum(found) >= 99
