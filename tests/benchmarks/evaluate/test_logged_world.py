"""A world of logs: what agents proposed and what the log answers; memories measured in it by one command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.evaluate.logged.command import app
from benchmarks.evaluate.logged.figures import interval
from benchmarks.evaluate.logged.holdouts import Measured, stages_by_place, stages_by_task
from benchmarks.evaluate.logged.memories import LookUp, Memory, OwnLog, Perfect
from benchmarks.evaluate.logged.play import BUDGET, RUNS, play
from benchmarks.evaluate.logged.world import LoggedWorld, family, sql_world
from fleetlore.errors import ConfigError

AGENTS = ("ada/plain", "ada/react", "bob/plain", "cyd/plain")
DATABASES = 8
TASKS = 6


def lines() -> Iterator[tuple[dict[str, object], list[dict[str, object]]]]:
    """In each database `db<n>` queries of `item_<n>` work, and of `items` they do not."""
    for agent, database, task in product(AGENTS, range(DATABASES), range(TASKS)):
        base = {
            "source": "s",
            "agent": agent,
            "session": f"{agent}:{database}:{task}",
            "task": f"t/{database}/{task}",
            "goal": f"count the things of kind {task} in item_{database}",
        }
        wrong = f"SELECT {task} FROM items"
        asked = [wrong, f"SELECT {task} FROM item_{database}"] if agent != "ada/react" else [wrong, "submit"]
        rewards = [1.0 if query.endswith(f"item_{database}") else 0.0 for query in asked]
        steps = []
        for number, query in enumerate(asked):
            error = f"Table 'db{database}.items' doesn't exist" if query == wrong else None
            steps.append(
                base
                | {"step": number, "tool": "sql", "role": "tool", "input": query, "output": "[(1,)]", "error": error}
            )
        yield (
            base | {"outcome": int(max(rewards)), "label_from": "env_reward", "meta": {"rewards": rewards}},
            steps,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    found = list(lines())
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(each) + "\n" for each, _ in found))
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for _, steps in found for step in steps))
    return folder


@pytest.fixture(scope="module")
def world(folder: Path) -> LoggedWorld:
    return sql_world(folder)


def test_a_task_has_each_proposal_once_with_its_answer_and_no_pseudo_call(world: LoggedWorld) -> None:
    task = world.tasks["t/3/1"]
    assert task.proposals == ["SELECT 1 FROM items", "SELECT 1 FROM item_3"]
    assert task.place == "db3"
    assert task.solves().tolist() == [False, True]
    assert task.replies["SELECT 1 FROM items"].call.failure is not None
    assert task.readiness("ada/react").tolist() == [4 + 3, 3]


def test_logs_without_a_reward_for_each_call_are_refused(tmp_path: Path) -> None:
    session = {"session": "s", "agent": "a", "task": "t", "goal": "count", "outcome": "success"}
    (tmp_path / "trajectories.jsonl").write_text(f"{json.dumps(session)}\n")
    (tmp_path / "steps.jsonl").write_text("")
    with pytest.raises(ConfigError, match="reward for each call"):
        sql_world(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_neither_the_family_of_a_persona_nor_what_is_held_out_was_met(world: LoggedWorld, seed: int) -> None:
    for stages in (stages_by_task(world, seed, 0), stages_by_place(world, seed, 0)):
        met_tasks: set[str] = set()
        met_places: set[str] = set()
        families: set[str] = set()
        for stage in stages:
            met_tasks |= {each.task for each in stage.past}
            met_places |= {each.place for each in stage.past}
            families |= {family(each.agent) for each in stage.past}
            for name, measured in stage.measured.items():
                assert measured
                assert not families & {family(each.agent) for each in measured}
                if name != "known":
                    assert not met_tasks & {each.task for each in measured}
                if name == "new_databases":
                    assert not met_places & {world.tasks[each.task].place for each in measured}
                if name == "after_5":
                    assert met_places >= {world.tasks[each.task].place for each in measured}


def test_the_past_of_another_order_is_the_same_set(world: LoggedWorld) -> None:
    (one,), (other,) = stages_by_task(world, 0, 0), stages_by_task(world, 0, 1)
    assert one.past != other.past
    assert {each.session for each in one.past} == {each.session for each in other.past}


def solved(world: LoggedWorld, memory: Memory, budget: int) -> float:
    measured = [Measured(task, "bob/plain") for task in world.tasks]
    played = asyncio.run(play(memory, measured, world.tasks, 0))
    return sum(each.solved[budget - 1] for each in played) / len(played)


def test_who_knows_what_fails_needs_one_call_and_who_knows_nothing_more(world: LoggedWorld) -> None:
    assert solved(world, Perfect(), 1) > 0.95
    assert 0.2 < solved(world, Memory(), 1) < 0.9
    assert solved(world, Memory(), BUDGET) == 1


def test_draws_in_a_session_are_those_of_one_that_hears_nothing(world: LoggedWorld) -> None:
    class Silent(Memory):
        in_session = True

    assert [solved(world, Silent(), budget) for budget in (1, 2)] == [
        solved(world, Memory(), budget) for budget in (1, 2)
    ]
    assert solved(world, OwnLog(), 1) == solved(world, Memory(), 1)


def test_a_look_up_knows_the_task_that_others_solved(world: LoggedWorld) -> None:
    memory = LookUp()
    asyncio.run(memory.learn([each for each in world.sessions if each.agent == "cyd/plain"]))
    assert solved(world, memory, 1) > 0.95


def test_an_interval_is_as_wide_as_its_clusters_differ() -> None:
    same = interval(["a", "a", "b", "b"], [0.0, 1.0, 0.0, 1.0])
    assert same == {"mean": 0.5, "low": 0.5, "high": 0.5}
    apart = interval(["a", "a", "b", "b"], [0.0, 0.0, 1.0, 1.0])
    assert (apart["low"], apart["high"]) == (0.0, 1.0)


def test_one_command_measures_all_arms(folder: Path) -> None:
    options = ["--data", str(folder), "--seeds", "2", "--orders", "2", "--json"]
    ran = CliRunner().invoke(app, options)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert set(found["solved"]["both"]) == {"new_tasks", "known", "new_databases", "after_5", "after_20", "after_60"}
    weights = found["solved"]["weights"]["new_tasks"]
    assert set(weights) == {str(budget) for budget in range(1, BUDGET + 1)}
    assert weights["1"]["mean"] > found["solved"]["none"]["new_tasks"]["1"]["mean"]
    assert found["paired"]["weights"]["LR"]["known"].keys() == {"mean", "low", "high"}
    assert len(found["reading_rule"]) == 64
    assert found["sessions"]["new_tasks"]["tasks"] <= DATABASES * TASKS
    assert RUNS > 1


@pytest.mark.parametrize("arms", ["none,magic", "weights"])
def test_wrong_arms_are_explained(folder: Path, arms: str) -> None:
    ran = CliRunner().invoke(app, ["--data", str(folder), "--arms", arms])
    assert ran.exit_code == 1
    assert "the arms are none" in ran.output
