"""The demo's isolated arm and its plan; the fleet's arm needs a stack (`test_demo.py`)."""

from __future__ import annotations

from benchmarks.demo.arms import Plan, isolated_arm
from benchmarks.demo.figures import compare_repeats


def test_the_plan_gives_every_agent_its_own_sessions_and_always_the_same() -> None:
    plan = Plan(agents=5, sessions=3)
    work = {agent: [(task.id, seed) for task, seed in plan.work(plan.world, agent)] for agent in plan.names}
    assert work == {agent: [(task.id, seed) for task, seed in plan.work(plan.world, agent)] for agent in plan.names}
    assert {len(sessions) for sessions in work.values()} == {3}
    assert len({seed for sessions in work.values() for _, seed in sessions}) == 15


async def test_the_isolated_arm_repeats_itself_to_the_letter_and_its_failures_often() -> None:
    plan = Plan(agents=12, sessions=3)
    seen = []
    runs = await isolated_arm(plan, lambda: seen.append(1))
    assert runs == await isolated_arm(plan, lambda: None)
    assert len(runs) == len(seen) == 36
    faults = sum(len(run.faults) for run in runs)
    assert compare_repeats(runs, runs).isolated > faults / 2


async def test_no_fault_of_the_weather_is_counted() -> None:
    runs = await isolated_arm(Plan(agents=6, sessions=3, seed=4), lambda: None)
    assert "network" not in {fault for run in runs for fault in run.faults}
