from __future__ import annotations

import pytest

from benchmarks.demo.world import World
from benchmarks.evaluate.worlds.disturbed import ChangedWorld, fallible, lie, sessions


def test_turned_rules_refuse_what_they_took_and_nothing_else_changes() -> None:
    world = World(0)
    tool, *others = fallible(world)
    changed = ChangedWorld(0, [tool])
    jobs = [job for some in world.domains.values() for job in some]
    for job in jobs:
        for value in job.values:
            turned = world.tool(job.tool) == tool
            assert changed.refuses(job, value) == (world.refuses(job, value) != turned)
    assert others and changed.tool(jobs[0].tool) == world.tool(jobs[0].tool)


def test_a_tool_that_refuses_nothing_has_no_reverse() -> None:
    with pytest.raises(ValueError, match="no-such-tool"):
        ChangedWorld(0, ["no-such-tool"])


def test_sessions_are_the_same_again_and_tasks_can_still_be_done_after_a_change() -> None:
    world = World(0)
    assert list(sessions(world, 5)) == list(sessions(World(0), 5))
    changed = ChangedWorld(0, fallible(world)[:2])
    assert {session["outcome"] for session in sessions(changed, 40)} == {"success", "failure"}


def test_a_lie_hides_the_failures_of_its_tools_only() -> None:
    session = next(s for s in sessions(World(0), 50) if sum(step["error_type"] is not None for step in s["steps"]) > 2)
    failed = [step["tool"] for step in session["steps"] if step["error_type"] is not None]
    told = lie(session, [failed[0]])
    assert all(step["error_type"] is None for step in told["steps"] if step["tool"] == failed[0])
    others = [step for step in session["steps"] if step["tool"] != failed[0]]
    assert [step for step in told["steps"] if step["tool"] != failed[0]] == others
    assert lie(session, []) == session
