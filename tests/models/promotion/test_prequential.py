from __future__ import annotations

import math

import numpy as np
import pytest

from models.data.dataset import Example
from models.promotion.e_process import Wealth
from models.promotion.metrics import Predictions
from models.promotion.prequential import Prequential

NEEDED = -math.log(0.05)


def examples(agents: list[str]) -> list[Example]:
    """One session of two steps for each."""
    return [
        Example(
            f"{number:036x}"[::-1], agent, np.zeros((5, 256)), np.zeros(2, dtype=np.int8), ("c",) * 2, ("t",) * 2, False
        )
        for number, agent in enumerate(agents)
    ]


def foreseen(probability: list[float]) -> Predictions:
    """Two steps a session, none of which fails."""
    p = np.repeat(np.array(probability, dtype=np.float64), 2)
    n = len(p)
    empty = np.array([""] * n, dtype=np.str_)
    return Predictions(p, np.zeros(n, dtype=np.bool_), empty, np.arange(n) // 2, empty)


def bets(agents: list[str], learner: list[float], running: list[float]) -> Prequential:
    evidence = Prequential(0.05)
    evidence.observe(examples(agents), foreseen(learner), foreseen(running))
    return evidence


def test_without_sessions_nothing_is_evident() -> None:
    evidence = bets([], [], [])
    assert (evidence.sessions, evidence.log_evidence, evidence.gain) == (0, 0.0, 0.0)


def test_a_learner_that_foresees_better_is_soon_evident() -> None:
    agents = [f"a{number}" for number in range(16)]
    evidence = bets(agents, [0.1] * 16, [0.4] * 16)
    assert evidence.log_evidence > NEEDED
    assert evidence.sessions == 16
    assert evidence.gain == pytest.approx(0.05)  # no session counts for more


def test_the_same_predictions_are_no_evidence() -> None:
    assert bets(["a", "b", "c"], [0.3] * 3, [0.3] * 3).log_evidence == pytest.approx(0.0)


def test_many_sessions_of_one_agent_do_not_decide() -> None:
    """Nine honest agents say it is worse; one that sends three times as much as all of them says it is better."""
    honest, loud = [f"a{number}" for number in range(9)], ["liar"] * 27
    learner, running = [0.4] * 9 + [0.1] * 27, [0.1] * 9 + [0.4] * 27
    assert bets(honest + loud, learner, running).log_evidence < 0
    other = [f"b{number}" for number in range(27)]
    assert bets(honest + other, learner, running).log_evidence > NEEDED


def test_an_agent_alone_decides() -> None:
    assert bets(["only"] * 16, [0.1] * 16, [0.4] * 16).log_evidence > NEEDED


def test_of_a_thousand_courses_that_never_are_better_at_most_one_in_twenty_is_ever_promoted() -> None:
    """Each has 20 updates of 32 sessions and is looked at after each. Its candidates depend on one another: how bad it
    is wanders slowly, and turns worse after luck, as it does when the learner learns what was lucky.
    """
    chance = np.random.default_rng(0)
    promoted = 0
    for _ in range(1000):
        wealth, badness, seen = Wealth(), 0.0, False
        for _ in range(20):
            differs = chance.random(32) < 0.3
            noise = np.where(differs, chance.choice([-1.0, 1.0], 32), chance.normal(0, 0.1, 32))
            # Some gains become losses: on average it is down by its badness.
            gains = np.where(chance.random(32) < badness, -np.abs(noise), noise)
            wealth.bet(gains.tolist())
            seen |= wealth.log >= NEEDED
            badness = min(1.0, 0.9 * badness + 0.1 * float(chance.random() * (gains.mean() > 0)))
        promoted += seen
    assert promoted <= 50
