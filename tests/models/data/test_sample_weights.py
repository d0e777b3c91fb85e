from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.dataset import UNLABELLED, Example
from models.data.sample_weights import sample_weights


def example(agent: str, session_failed: bool = False, steps: int = 4, labelled: int = 4) -> Example:
    failed = np.zeros(steps, dtype=np.int8)
    failed[labelled:] = UNLABELLED
    return Example(
        "0" * 36, agent, np.zeros((1 + 2 * steps, 256)), failed, ("c",) * steps, ("t",) * steps, session_failed
    )


def shares(examples: list[Example]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for each, weight in zip(examples, sample_weights(examples), strict=True):
        found[each.agent] += weight * int((each.failed != UNLABELLED).sum())
    total = sum(found.values())
    return {agent: mass / total for agent, mass in found.items()}


sessions = st.builds(
    example, st.sampled_from([f"a{n}" for n in range(30)]), st.booleans(), st.just(6), st.integers(1, 6)
)


@given(st.lists(sessions, min_size=1, max_size=80))
def test_no_agent_has_more_than_its_share_and_the_mean_weight_is_one(examples: list[Example]) -> None:
    found = shares(examples)
    assert max(found.values()) <= max(0.05, 1 / len(found)) + 1e-9
    steps = [int((each.failed != UNLABELLED).sum()) for each in examples]
    assert np.average(sample_weights(examples), weights=steps) == pytest.approx(1)
    assert min(sample_weights(examples)) >= 0


def test_a_flood_gets_five_per_cent() -> None:
    fleet = [example(f"a{n}", failed) for n in range(40) for failed in (True, False)]
    assert shares([*fleet, *[example("loud")] * 100])["loud"] <= 0.05 + 1e-9


def test_both_outcomes_weigh_the_same() -> None:
    examples = [example(f"a{n}", n % 3 == 0) for n in range(30)]
    weights = sample_weights(examples)
    failed = sum(w for w, e in zip(weights, examples, strict=True) if e.session_failed)
    assert failed == pytest.approx(sum(weights) / 2)


def test_a_lonely_outcome_does_not_become_everything() -> None:
    examples = [example(f"a{n}", n == 0) for n in range(60)]
    assert max(sample_weights(examples)) < 3.1


def test_one_agent_alone_is_learned_whole() -> None:
    assert sample_weights([example("only"), example("only")]) == [1.0, 1.0]


def test_nothing_labelled_weighs_nothing_odd() -> None:
    assert sample_weights([example("a", labelled=0)]) == [1.0]
