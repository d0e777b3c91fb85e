from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.judge.calibration import PINNED, evidence, platt


@given(st.floats(0.3, 3), st.floats(-2, 2), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_it_finds_the_scale_and_the_shift(slope: float, shift: float, seed: int) -> None:
    chance = np.random.default_rng(seed)
    scores = chance.normal(0, 2, 4000)
    outcome = chance.random(4000) < 1 / (1 + np.exp(-(slope * scores + shift)))
    found = platt(scores, outcome)
    assert found == pytest.approx((slope, shift), abs=0.1 + 0.1 * slope)


def test_without_evidence_it_changes_nothing_and_never_turns_a_score_round() -> None:
    assert platt(np.zeros(0), np.zeros(0, bool)) == (1.0, 0.0)
    scores = np.linspace(-3, 3, 200)
    assert 0 < platt(scores, scores < 0)[0] <= 0.1


def test_a_pinned_slope_stays() -> None:
    slope, shift = platt(np.linspace(-3, 3, 200), np.arange(200) % 4 > 0, (PINNED, 1.0))
    assert slope == pytest.approx(1.0, abs=1e-6)
    assert shift > 0.5


@pytest.mark.parametrize("ridge", [(PINNED, 0.5), (PINNED, 4.0)])
def test_evidence_is_the_likelihood_over_all_shifts(ridge: tuple[float, float]) -> None:
    scores, outcome = np.array([-1.0, 0.5, 2.0, 0.1] * 5), np.array([True, True, True, False] * 5)
    shifts = np.linspace(-30, 30, 60_001)
    logits = scores[:, None] + shifts
    likely = np.exp(-np.logaddexp(0, np.where(outcome[:, None], -logits, logits)).sum(axis=0))
    prior = np.sqrt(ridge[1] / 2 / np.pi) * np.exp(-ridge[1] * shifts**2 / 2)
    true = np.log((likely * prior).sum() * (shifts[1] - shifts[0]))
    assert evidence(scores, outcome, ridge) == pytest.approx(true, abs=0.05)


def test_evidence_prefers_the_spread_that_there_is() -> None:
    chance = np.random.default_rng(0)

    def best(spread: float) -> float:
        agents = []
        for shift in chance.normal(0, spread, 40):
            scores = chance.normal(0, 1, 50)
            agents.append((scores, chance.random(50) < 1 / (1 + np.exp(-scores - shift))))
        return max((64.0, 4.0, 0.25), key=lambda ridge: sum(evidence(*each, (PINNED, ridge)) for each in agents))

    assert [best(spread) for spread in (0.0, 0.5, 2.0)] == [64.0, 4.0, 0.25]
