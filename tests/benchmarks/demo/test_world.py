"""The tool world: deterministic, solvable, with rules that depend on state and weather that does not."""

import json
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo.world import Environment, Reply, World
from benchmarks.rollouts import rollouts

SEEDS = st.integers(0, 10_000)


def still(seed: int = 0) -> World:
    """A world without weather."""
    return World(seed, flakiness=0.0)


def follow(environment: Environment) -> list[Reply]:
    replies = []
    while not environment.done:
        replies.append(environment.perform(environment.solve()))
    return replies


@given(seed=SEEDS, number=st.integers(0, 23), session=SEEDS)
def test_every_task_can_be_solved_within_its_budget_and_in_still_weather_without_an_error(
    seed: int, number: int, session: int
) -> None:
    world = still(seed)
    environment = world.open(world.tasks[number], session)
    replies = follow(environment)
    assert environment.succeeded
    assert not any(reply.failed for reply in replies)


def test_rollouts_are_plain_reproducible_data_with_both_outcomes() -> None:
    sessions = list(rollouts(7, 120))
    assert sessions == list(islice(rollouts(7, 500), 120))
    assert sessions != list(rollouts(7, 120, seed=1))
    assert json.loads(json.dumps(sessions)) == sessions
    share = sum(session["outcome"] == "success" for session in sessions) / len(sessions)
    assert 0.3 < share < 0.9
    tools = {step["tool"] for session in sessions for step in session["steps"]}
    assert len(tools) >= 20
