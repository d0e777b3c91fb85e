"""The references: what the world itself knows, with the same slips and weather as every arm."""

from __future__ import annotations

import pytest

from benchmarks.evaluate.arms.agent import Mind, attend
from benchmarks.evaluate.arms.memory import LogOnly, Recall
from benchmarks.evaluate.arms.oracle import REFERENCES, KnowingMind, mind_of
from benchmarks.evaluate.figures import steps_taken
from benchmarks.evaluate.runner import Plan, evaluate
from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.tool_world import ToolWorld
from benchmarks.evaluate.worlds.world import Call, Proposal

RIGHT, WRONG = Call("right", {}), Call("wrong", {})
PROPOSALS = [Proposal(WRONG, 400.0), Proposal(RIGHT, 1.0)]


async def lived(name: str | None, number: int) -> Recorded:
    world = ToolWorld(3, jobs=8)
    task = world.tasks[number]
    environment = world.open(task, f"s{number}", 0)
    mind = None if name is None else mind_of(name)("agent", f"s{number}", environment)
    return await attend(
        "agent", task, environment, LogOnly(), session=f"s{number}", luck=f"s{number}", number=number, mind=mind
    )


async def test_who_knows_the_rules_is_faster_and_slips_and_weather_cost_it_something() -> None:
    steps = {
        name: sum([steps_taken(await lived(name, number)) for number in range(6)]) / 6 for name in (None, *REFERENCES)
    }
    assert 1.0 < steps["oracle-obeyed"] < steps["oracle"] < steps[None]


async def test_what_the_world_calls_right_solves_every_session_in_its_shortest_way() -> None:
    world = ToolWorld(3, jobs=3)
    for task in world.tasks:
        environment = world.open(task, "s", 0)
        while not environment.done:
            environment.perform(environment.solve())
        assert environment.succeeded


def test_an_obedient_one_has_no_mind_of_its_own_and_the_other_has() -> None:
    def right(name: str) -> float:
        minds = [KnowingMind(f"a{n}", f"l{n}", lambda: RIGHT, REFERENCES[name]) for n in range(300)]
        return sum(mind.choose(PROPOSALS, Recall()) == RIGHT for mind in minds) / 300

    own = sum(Mind(f"a{n}", f"l{n}", False).choose(PROPOSALS, Recall()) == RIGHT for n in range(300)) / 300
    assert own < right("oracle") < 0.5 < 0.9 < right("oracle-obeyed") < 1.0  # slips remain


async def test_references_stand_beside_the_arms_and_are_none() -> None:
    plan = Plan(arms=(), seeds=(0,), orders=2, history=1, measured=2, forgetting_seeds=0)
    results = await evaluate(lambda seed: ToolWorld(seed, jobs=3), plan, lambda names: {}, print)
    assert results.runs == {}
    assert {name: len(runs[0]) for name, runs in results.references.items()} == dict.fromkeys(REFERENCES, 2)
    assert all(run["success"] == 1.0 for runs in results.references.values() for run in runs[0])


def test_an_unknown_reference_is_refused() -> None:
    with pytest.raises(KeyError):
        mind_of("crystal ball")
