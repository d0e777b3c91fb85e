from __future__ import annotations

import random

import pytest

from models.promotion.drift import ChangeDetector, Residual

AGENTS = [f"a{number:02}" for number in range(20)]
LIARS = AGENTS[:6]


def known(error: float = 0.08) -> ChangeDetector:
    detector = ChangeDetector()
    detector.set_baseline({("deploy", True): error, ("git", True): error})
    return detector


def residual(chance: random.Random, surprising: float) -> float:
    """Of a step that was warned of: most fail as foreseen, some do not fail at all."""
    return -0.3 * chance.random() if chance.random() > surprising else 0.8 + 0.2 * chance.random()


def run(
    detector: ChangeDetector, updates: int, mean: dict[str, float], seed: int = 0, tool: str = "deploy"
) -> int | None:
    """Feed updates of 20 steps, one of each agent; the update after which the rules are said to have changed."""
    chance = random.Random(seed)
    for update in range(1, updates + 1):
        steps = [Residual(tool, True, agent, residual(chance, mean.get(agent, 0.06))) for agent in AGENTS]
        if tool in detector.observe(steps):
            return update
    return None


@pytest.mark.parametrize("seed", range(5))
def test_in_a_steady_world_nothing_changes_and_no_agent_is_an_outlier(seed: int) -> None:
    detector = known()
    assert run(detector, 200, {}, seed) is None
    assert detector.outliers == frozenset()


@pytest.mark.parametrize("seed", range(5))
def test_what_all_agents_see_is_a_change_and_soon(seed: int) -> None:
    detector = known()
    run(detector, 20, {}, seed)
    found = run(detector, 30, dict.fromkeys(AGENTS, 0.7), seed + 100)
    assert found is not None and found <= 10
    assert detector.outliers == frozenset()


@pytest.mark.parametrize("seed", range(5))
def test_what_six_of_twenty_report_is_no_change_and_they_alone_are_outliers(seed: int) -> None:
    detector = known()
    run(detector, 20, {}, seed)
    assert run(detector, 60, dict.fromkeys(LIARS, 0.5), seed + 100) is None
    liars = {(agent, "deploy") for agent in LIARS}
    assert detector.outliers <= liars and len(detector.outliers) >= 5


def test_an_outlier_on_one_tool_is_none_on_another() -> None:
    detector = known()
    run(detector, 60, dict.fromkeys(LIARS, 0.5))
    run(detector, 20, {}, tool="git")
    assert not {agent for agent, tool in detector.outliers if tool == "git"}


def test_an_agent_that_agrees_again_is_trusted_again() -> None:
    detector = known()
    run(detector, 60, dict.fromkeys(LIARS, 0.5))
    assert detector.outliers
    run(detector, 60, {}, seed=5)
    assert detector.outliers == frozenset()


def test_a_dispute_of_halves_leaves_no_agent_out() -> None:
    detector = known()
    run(detector, 20, {})
    run(detector, 40, dict.fromkeys(AGENTS[:9], 0.6), seed=3)
    assert detector.outliers == frozenset()


def test_a_lone_agent_is_trusted_about_a_change() -> None:
    detector, chance = known(), random.Random(1)
    changed = [
        detector.observe([Residual("deploy", True, "only", residual(chance, 0.9)) for _ in range(3)]) for _ in range(30)
    ]
    assert frozenset({"deploy"}) in changed


def test_without_a_baseline_nothing_is_detected() -> None:
    detector = ChangeDetector()
    assert run(detector, 50, dict.fromkeys(AGENTS, 0.9)) is None


def test_the_lowest_error_stays_the_reference_until_a_change() -> None:
    detector = known(0.08)
    detector.set_baseline({("deploy", True): 0.5})
    assert run(detector, 30, dict.fromkeys(AGENTS, 0.7)) is not None


@pytest.mark.parametrize("seed", range(5))
def test_liars_are_found_by_a_version_that_knows_no_more_than_how_often_a_tool_fails(seed: int) -> None:
    chance, detector = random.Random(seed), ChangeDetector()
    detector.set_baseline({("deploy", True): 0.22, ("deploy", False): 0.22})
    crowd = [*AGENTS[6:], *LIARS * 5]
    for update in range(80):
        steps = []
        for _ in range(20):
            agent = chance.choice(AGENTS if update < 20 else crowd)
            probability = chance.betavariate(3.5, 6.5)
            failed = chance.random() < probability and not (update >= 20 and agent in LIARS)
            steps.append(Residual("deploy", probability > 0.5, agent, probability - failed))
        detector.observe(steps)
    assert {agent for agent, _ in detector.outliers} == set(LIARS)


def test_no_agent_is_an_outlier_without_a_baseline() -> None:
    detector = ChangeDetector()
    detector.set_baseline({("git", True): 0.1})
    run(detector, 60, dict.fromkeys(LIARS, 0.9))
    assert detector.outliers == frozenset()
