"""The grown tool world: ten domains, tasks of at least 30 steps, rules that drift, restarts that can be got past."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.demo.catalogue import CATALOGUE
from benchmarks.demo.world import Reply
from benchmarks.evaluate.worlds.long_catalogue import LONG_CATALOGUE
from benchmarks.evaluate.worlds.long_world import RESTARTED, SLACK, LongEnvironment, LongWorld

SEEDS = st.integers(0, 10_000)


def follow(environment: LongEnvironment) -> list[Reply]:
    replies = []
    while not environment.done:
        replies.append(environment.perform(environment.solve()))
    return replies


def rules(world: LongWorld, domain: str) -> list[object]:
    jobs = world.domains[domain]
    return [
        ([world.refuses(job, value) for value in job.values], world.needs(job), [world.helps(n) for n in job.needs])
        for job in jobs
    ]


def test_there_are_ten_domains_and_the_seven_known_ones_are_as_they_were() -> None:
    assert len(LONG_CATALOGUE.domains) == 10
    assert CATALOGUE.domains.items() <= LONG_CATALOGUE.domains.items()
    assert CATALOGUE.preconditions.items() <= LONG_CATALOGUE.preconditions.items()


@pytest.mark.parametrize("seed", range(3))
def test_every_task_takes_30_steps_or_more_and_can_be_solved_within_its_budget(seed: int) -> None:
    world = LongWorld(seed)
    for task in world.tasks:
        environment = world.open(task, "s")
        assert environment.shortest >= 30
        assert environment.budget >= SLACK * environment.shortest
        follow(environment)
        assert environment.succeeded


@given(seed=SEEDS, number=st.integers(0, 23), session=SEEDS)
@settings(max_examples=30, deadline=None)
def test_the_shortest_way_is_what_solve_takes_without_weather_and_restarts(
    seed: int, number: int, session: int
) -> None:
    world = LongWorld(seed, flakiness=0.0, restarts=0)
    environment = world.open(world.tasks[number], session)
    assert len(follow(environment)) == environment.shortest
    assert environment.succeeded


@pytest.mark.parametrize("seed", range(6))
def test_two_domains_drift_and_all_others_keep_their_rules_and_names(seed: int) -> None:
    before, after = LongWorld(seed), LongWorld(seed, epoch=1)
    assert before.drifting == after.drifting and len(before.drifting) == 2
    changed = {domain for domain in before.domains if rules(before, domain) != rules(after, domain)}
    assert changed and changed <= before.drifting
    assert [task.id for task in before.tasks] == [task.id for task in after.tasks]
    for domain in before.domains:
        for job in before.domains[domain]:
            assert before.tool(job.tool) == after.tool(job.tool)


def test_a_world_keeps_its_rules_whatever_domains_are_shown() -> None:
    assert rules(LongWorld(3), "git") == rules(LongWorld(3, domains=["git"]), "git")


def test_a_restart_takes_what_was_prepared_and_can_be_got_past() -> None:
    world = LongWorld(0, domains=["cloud"], flakiness=0.0)
    for session in range(5):
        environment = world.open(world.tasks[0], session)
        replies = follow(environment)
        restarts = [reply for reply in replies if reply.fault == RESTARTED]
        assert len(restarts) == world.restarts
        assert all(reply.error_type == "HostRestarted" for reply in restarts)
        assert environment.succeeded
        assert len(replies) > environment.shortest + len(restarts)  # something had to be prepared again
    assert not any(reply.fault == RESTARTED for reply in follow(LongWorld(0, restarts=0).open(world.tasks[0], 1)))


def test_the_same_session_twice_is_the_same() -> None:
    def play() -> list[Reply]:
        world = LongWorld(5)
        return follow(world.open(world.tasks[4], "x"))

    assert play() == play()
