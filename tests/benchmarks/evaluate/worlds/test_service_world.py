"""The second world of tools: tasks of some 30 calls, and failures of the kinds that the first does not have."""

from __future__ import annotations

import pytest

from benchmarks.evaluate.worlds.service_world import OPAQUE, SERVICES, Job, ServiceSession, ServiceWorld
from benchmarks.evaluate.worlds.world import Call, Reply

TAKES = {"east": "amber", "north": "basic", "south": "amber", "west": "amber"}


def session(**rule: object) -> ServiceSession:
    """One subgoal without weather."""
    known = {"takes": TAKES, "needs": None, "lasts": 4, "wrong": "error"} | rule
    job = Job("depot", "move", "batch", "mode", ("amber", "basic"), **known)  # type: ignore[arg-type]
    return ServiceSession([job, job], {"depot": OPAQUE[0]}, "s", flakiness=0.0)


def call(at: ServiceSession, tool: str, **wanted: object) -> Reply:
    """Make a proposed call of a tool, with these values."""
    calls = [each.call for each in at.proposals()]
    return at.perform(next(each for each in calls if each.tool == tool and wanted.items() <= each.arguments.items()))


def value(at: ServiceSession, *, right: bool) -> str:
    region = next(each.call.arguments["region"] for each in at.proposals() if each.call.tool == "depot_move")
    return next(each for each in ("amber", "basic") if (each == TAKES[region]) == right)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_task_is_solved_by_the_way_that_the_world_shows(seed: int, epoch: int) -> None:
    world = ServiceWorld(seed)
    lengths = []
    for task in world.tasks:
        environment = world.open(task, "s", epoch)
        while not environment.done:
            environment.perform(environment.solve())
        assert environment.succeeded
        assert environment.calls >= environment.shortest
        lengths.append(environment.shortest)
    assert sum(lengths) / len(lengths) > 30


def test_the_same_seed_gives_the_same_session_and_about_half_of_the_jobs_change() -> None:
    one, same = ServiceWorld(5), ServiceWorld(5)
    assert one.open(one.tasks[2], "s", 1).proposals() == same.open(same.tasks[2], "s", 1).proposals()
    before, after = ([each for jobs in epoch.values() for each in jobs] for epoch in one._jobs)
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert [each.tool for each in before] == [each.tool for each in after]
    assert 0.2 < changed / len(before) < 0.7


def test_its_parts_share_no_service() -> None:
    old, new = ServiceWorld(0).parts()
    seen = [{name for task in world.tasks for name in task.domain.split("-")} for world in (old, new)]
    assert not seen[0] & seen[1] and seen[0] | seen[1] == set(SERVICES)


def test_a_refusal_depends_on_the_region_and_says_nothing_of_it() -> None:
    at = session()
    refused = call(at, "depot_move", mode=value(at, right=False))
    assert refused.error_message is not None and "mode" not in refused.error_message
    assert not call(at, "depot_move", mode=value(at, right=True)).failed
    assert at.progress == 1


def test_what_is_needed_takes_two_calls_in_an_order_and_wears_off() -> None:
    at = session(needs=("enroll", "unseal"), lasts=1)
    assert not call(at, "depot_unseal").failed  # alone it works, and sets up nothing
    lacking = call(at, "depot_move", mode=value(at, right=True))
    wrong = call(session(), "depot_move", mode=value(session(), right=False))
    assert lacking.error_type == wrong.error_type and lacking.failed
    call(at, "depot_enroll")
    call(at, "depot_unseal")
    call(at, "depot_move", mode=value(at, right=True))
    assert at.progress == 1
    assert call(at, "depot_move", mode=value(at, right=True)).failed


def test_a_wrong_value_may_be_silent_or_fail_late() -> None:
    silent = session(wrong="silent")
    assert not call(silent, "depot_move", mode=value(silent, right=False)).failed
    assert silent.progress == 0
    late = session(wrong="late")
    assert not call(late, "depot_move", mode=value(late, right=False)).failed
    assert call(late, "depot_apply").failed and late.progress == 0
    call(late, "depot_move", mode=value(late, right=True))
    assert not call(late, "depot_apply").failed and late.progress == 1
    assert isinstance(late.solve(), Call)
