"""The tool world: deterministic, solvable, with rules that depend on state and weather that does not."""

import json
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo.catalogue import CATALOGUE, Job
from benchmarks.demo.world import Call, Environment, Reply, Task, World
from benchmarks.rollouts import rollouts

JOBS = [job for jobs in CATALOGUE.domains.values() for job in jobs]
SEEDS = st.integers(0, 10_000)


def still(seed: int = 0) -> World:
    """A world without weather."""
    return World(seed, flakiness=0.0)


def follow(environment: Environment) -> list[Reply]:
    replies = []
    while not environment.done:
        replies.append(environment.perform(environment.solve()))
    return replies


def world_where(job: Job, need: str) -> World:
    """The first world in which `need` holds back `job`."""
    return next(world for world in map(still, range(200)) if need in world.needs(job))


def working_call(environment: Environment, job: Job) -> Call:
    value = next(value for value in job.values if not environment.world.refuses(job, value))
    return next(call for call in environment.step.attempts if call.arguments[job.choice] == value)


@given(seed=SEEDS, number=st.integers(0, 23), session=SEEDS)
def test_every_task_can_be_solved_within_its_budget_and_in_still_weather_without_an_error(
    seed: int, number: int, session: int
) -> None:
    world = still(seed)
    environment = world.open(world.tasks[number], session)
    replies = follow(environment)
    assert environment.succeeded
    assert not any(reply.failed for reply in replies)


def test_a_remedy_with_limited_uses_wears_off() -> None:
    job = next(job for job in JOBS if job.needs == ("rate-limit",))
    world = world_where(job, "rate-limit")
    environment = world.open(Task("four", (job,) * 4), 1)
    faults = []
    while not environment.done:
        reply = environment.perform(working_call(environment, job))
        if reply.failed:
            faults.append(environment.reached)
            environment.perform(environment.solve())
    assert faults == [1, 3]


def test_success_needs_every_subgoal_for_the_right_thing() -> None:
    job = next(job for job in JOBS if job.tool.startswith("file_write"))
    world = next(world for world in map(still, range(200)) if not world.needs(job))
    environment = world.open(Task("two", (job, job)), 1)
    call = working_call(environment, job)
    elsewhere = Call(call.tool, call.arguments | {"path": "/tmp/elsewhere.toml"})
    assert not environment.perform(elsewhere).failed
    assert environment.reached == 0
    environment.perform(call)
    assert environment.reached == 1
    environment.perform(working_call(environment, job))
    assert environment.succeeded
    assert environment.reached == 2


def test_rollouts_are_plain_reproducible_data_with_both_outcomes() -> None:
    sessions = list(rollouts(7, 120))
    assert sessions == list(islice(rollouts(7, 500), 120))
    assert sessions != list(rollouts(7, 120, seed=1))
    assert json.loads(json.dumps(sessions)) == sessions
    share = sum(session["outcome"] == "success" for session in sessions) / len(sessions)
    assert 0.3 < share < 0.9
    tools = {step["tool"] for session in sessions for step in session["steps"]}
    assert len(tools) >= 20
