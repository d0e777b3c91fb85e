from __future__ import annotations

import random

import pytest

from fleetlore.testing.sessions import call, judgment
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.promotion.canary import CanaryTrial


def session(number: int, version: str | None, label: Label) -> Judgment:
    thanks = Step(sequence=0, role="user", result="thanks")
    return judgment(call("t", adapter=version), thanks, label=label, session=f"s{number}")


def trial(canary: float, stable: float, sessions: int, seed: int) -> str:
    """What is decided of two versions with these chances of success, looked at after every session."""
    chance, running = random.Random(seed), CanaryTrial("new", "old", 0.0)
    for number in range(sessions):
        version = chance.choice(["new", "old", "old", "older"])
        won = chance.random() < (canary if version == "new" else stable)
        running.add(session(number, version, "success" if won else "failure"))
        if (decision := running.decide(1.0)) != "waiting":
            return decision
    return "waiting"


def test_one_that_costs_success_is_aborted() -> None:
    found = [trial(0.3, 0.7, 600, seed) for seed in range(40)]
    assert found.count("abort") >= 38 and "promote" not in found


@pytest.mark.long
def test_one_that_costs_nothing_is_promoted() -> None:
    found = [trial(0.8, 0.8, 1500, seed) for seed in range(40)]
    assert found.count("promote") >= 28 and found.count("abort") <= 5


@pytest.mark.long
def test_one_that_costs_as_much_as_the_margin_is_seldom_promoted() -> None:
    found = [trial(0.6, 0.7, 800, seed) for seed in range(60)]
    assert found.count("promote") <= 3


def test_without_sessions_nothing_is_promoted() -> None:
    running = CanaryTrial("new", "old", 0.0)
    assert running.decide(10.0) == "waiting"
    assert running.decide(3600.0) == "abort"


@pytest.mark.parametrize(("version", "label"), [(None, "success"), ("other", "success"), ("new", "abstained")])
def test_what_says_nothing_is_not_counted(version: str | None, label: str) -> None:
    running = CanaryTrial("new", "old", 0.0)
    running.add(session(1, version, label))
    assert running.counts == {"new": (0, 0), "old": (0, 0)}


def test_a_session_counts_once() -> None:
    running = CanaryTrial("new", "old", 0.0)
    for _ in range(3):
        running.add(session(1, "new", "success"))
    assert running.counts["new"] == (1, 1)
