"""The demo's world is solvable and repeats itself, and the whole demo runs on a real stack with few agents."""

import io
import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from benchmarks.demo.arms import Plan, isolated_arm
from benchmarks.demo.figures import advice_times, compare_repeats
from benchmarks.demo.run import can_train, run_demo
from benchmarks.demo.world import Environment, Reply, World
from benchmarks.rollouts import rollouts


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_small_fleet_learns_from_its_own_failures(tmp_path: Path) -> None:
    plan = Plan(agents=24, sessions=6, stagger_seconds=0.3)
    figures = await run_demo(plan, tmp_path, Progress(console=Console(file=io.StringIO()), disable=True))
    assert figures.agents_on_latest_adapter == plan.agents
    assert figures.adapter_versions >= 2
    assert figures.judgments == plan.agents * plan.sessions
    assert figures.repeat_failures.fleet <= figures.repeat_failures.isolated / 2
    assert figures.success_rate.fleet > figures.success_rate.isolated
    assert figures.time_to_advice_seconds.p50 <= 2.0  # a loaded machine stretches the tail
    assert figures.patterns > 0
    assert figures.memory_items > 0
    assert figures.events > figures.sessions
    assert figures.hints and all(hint.startswith("- ") for hint, _ in figures.hints)
    assert can_train(), "the checks have PyTorch"
    assert figures.policy is not None
    assert figures.policy.metrics["margin"] > figures.policy.metrics["margin_base"]


def test_the_demo_starts_without_pytorch() -> None:
    """On a fresh machine `make demo` does not install it."""
    code = """
import sys
sys.modules |= {"torch": None, "peft": None}
from benchmarks.demo.__main__ import demo
from benchmarks.demo.run import can_train
sys.exit(can_train())
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


async def test_the_isolated_arm_repeats_itself_to_the_letter_and_its_failures_often() -> None:
    plan = Plan(agents=12, sessions=3)
    seen = []
    runs = await isolated_arm(plan, lambda: seen.append(1))
    assert runs == await isolated_arm(plan, lambda: None)
    assert len(runs) == len(seen) == 36
    faults = sum(len(run.faults) for run in runs)
    assert compare_repeats(runs, runs).isolated > faults / 2


@dataclass
class Known:
    name: str
    joined: float = 0.0
    times: dict[str, float] = field(default_factory=dict)

    def learned_at(self, pattern: str) -> float | None:
        return self.times.get(pattern)


def test_advice_times_leave_out_who_met_it_and_who_was_not_there_yet() -> None:
    first_met = {"p": (10.0, "a")}
    learners = [Known("a", 0.0, {"p": 10.1}), Known("b", 1.0, {"p": 10.4}), Known("late", 10.2, {"p": 10.9})]
    assert advice_times(first_met, learners) == [pytest.approx(0.4)]
    assert advice_times(first_met, [Known("b", 0.0, {"p": 9.9})]) == [0.0], "it was known before the call ended"
    assert advice_times(first_met, [Known("a"), Known("b")]) == [math.inf], "it never learned"


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
