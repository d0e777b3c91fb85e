"""A world of logs: what agents proposed and what the log answers; memories measured in it by one command."""

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.evaluate.__main__ import app
from benchmarks.evaluate.figures import interval
from benchmarks.evaluate.fleet import Fleet, OtherPlace
from benchmarks.evaluate.holdouts import Measured, stages_by_group, stages_by_task, stages_of_others
from benchmarks.evaluate.logs import WORLDS, sql_log
from benchmarks.evaluate.memories import Memory, Perfect
from benchmarks.evaluate.play import BUDGET, RUNS, play
from benchmarks.evaluate.recall import Note, Recall
from benchmarks.evaluate.world import LoggedTask, LoggedWorld, family
from fleetlore.errors import ConfigError
from tests.logs import write_logs

AGENTS = ("ada/plain", "ada/react", "bob/plain", "cyd/plain")
DATABASES = 8
TASKS = 6
Step = tuple[str, str, str | None, float]
SMOKE = Path(__file__).parents[4] / "shared/data/smoke/intercode"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In each database `db<n>` queries of `item_<n>` work, and of `items` they do not."""
    sessions = []
    for agent, database, task in product(AGENTS, range(DATABASES), range(TASKS)):
        wrong, right = f"SELECT {task} FROM items", f"SELECT {task} FROM item_{database}"
        calls: list[Step] = [("sql", wrong, f"Table 'db{database}.items' doesn't exist", 0.0)]
        calls += [("sql", right, None, 1.0)] if agent != "ada/react" else [("sql", "submit", None, 0.0)]
        goal = {"goal": f"count the things of kind {task} in item_{database}"}
        sessions.append((agent, f"t/{database}/{task}", int(calls[1][3]), calls, goal))
    return write_logs(tmp_path_factory.mktemp("logs"), sessions)


@pytest.fixture(scope="module")
def world(folder: Path) -> LoggedWorld:
    return sql_log(folder)


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
    for name, read in WORLDS.items():
        wanted = "end is known" if name == "python-log" else "reward for each call"
        with pytest.raises(ConfigError, match=wanted):
            read(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_neither_the_family_of_a_persona_nor_what_is_held_out_was_met(world: LoggedWorld, seed: int) -> None:
    for stages in (stages_by_task(world, seed, 0), stages_by_group(world, seed, 0)):
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


def solved(world: LoggedWorld, memory: Memory, budget: int) -> float:
    measured = [Measured(task, "bob/plain") for task in world.tasks]
    played = asyncio.run(play(memory, measured, world.tasks, 0))
    return sum(each.solved[budget - 1] for each in played) / len(played)


def test_who_knows_what_fails_needs_one_call_and_who_knows_nothing_more(world: LoggedWorld) -> None:
    assert solved(world, Perfect(), 1) > 0.95
    assert 0.2 < solved(world, Memory(), 1) < 0.9
    assert solved(world, Memory(), BUDGET) == 1


@pytest.mark.parametrize("sure", [0.01, 0.4])
def test_the_safest_proposal_is_taken_however_sure_a_memory_is(world: LoggedWorld, sure: float) -> None:
    class Ranks(Memory):
        def recall(self, task: LoggedTask) -> Recall:
            return Recall(risks=[0.5 + sure if "items" in text else 0.5 for text in task.replies])

    measured = [Measured(task, "bob/plain") for task in world.tasks]
    played = asyncio.run(play(Ranks(), measured, world.tasks, 0))
    assert all(each.failed_safest == 0 for each in played)
    assert sum(each.failed for each in played) > 0
    assert asyncio.run(play(Memory(), measured[:1], world.tasks, 0))[0].failed_safest is None


def write(folder: Path, sessions: Mapping[tuple[str, str], tuple[int, Sequence[Step]]]) -> Path:
    """Logs of {(agent, task): (outcome, [(tool, input, error, reward)])}, one session each."""
    return write_logs(folder, [(*names, *outcome_and_calls, {}) for names, outcome_and_calls in sessions.items()])


def test_an_interval_is_as_wide_as_its_clusters_differ() -> None:
    same = interval(["a", "a", "b", "b"], [0.0, 1.0, 0.0, 1.0])
    assert same == {"mean": 0.5, "low": 0.5, "high": 0.5}
    apart = interval(["a", "a", "b", "b"], [0.0, 0.0, 1.0, 1.0])
    assert (apart["low"], apart["high"]) == (0.0, 1.0)


def test_one_command_measures_all_arms(folder: Path) -> None:
    options = ["sql-log", "--data", str(folder), "--seeds", "1", "--orders", "1"]
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


def test_a_placebo_has_as_many_tips_that_were_given_at_another_place(world: LoggedWorld) -> None:
    placebo = OtherPlace(Fleet(lore=False), learns=False)
    one, same, other = world.tasks["t/0/1"], world.tasks["t/0/2"], world.tasks["t/1/1"]
    assert placebo.said(one, [Note("first of a")]) == []
    assert placebo.said(same, [Note("second of a")]) == []
    assert placebo.said(other, [Note("b"), Note("c", 3)]) == [Note("second of a"), Note("second of a", 3)]
    assert placebo.said(one, [Note("third")]) == [Note("b")]
    assert placebo.said(other, []) == []


def test_one_command_measures_python_as_it_does_sql(tmp_path: Path) -> None:
    sessions = {}
    for agent, kind, task in product(("ada-1b", "bob-1b", "cyd-1b"), ("sums", "words", "lists", "games"), range(8)):
        solving = agent == "cyd-1b" or (agent == "ada-1b") == (task % 2 == 0)
        code = f"print({task})" if solving else f"prin({task})"
        error = None if solving else "NameError: name 'prin' is not defined"
        sessions[agent, f"{kind}/{task}"] = int(solving), [("python", code, error, 0.0)]
    options = ["python-log", "--data", str(write(tmp_path, sessions)), "--seeds", "2", "--orders", "1"]
    ran = CliRunner().invoke(app, [*options, "--arms", "none,counts,LR,weights,perfect"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert set(found["sessions"]) == {"new_tasks", "known", "new_benchmarks", "after_5", "after_20", "after_60"}
    failed = {arm: found["failed"][arm]["new_tasks"]["mean"] for arm in found["failed"]}
    assert failed["perfect"] < 0.1 < failed["none"]
    assert failed["weights"] < failed["none"]
    assert found["paired_failed"]["perfect"]["none"]["new_tasks"]["high"] < 0
    losses = {arm: slices["new_tasks"]["mean"] for arm, slices in found["log_loss"].items()}
    assert losses.keys() == {"counts", "LR", "weights", "perfect"}
    # The arms make different calls, so learned weights can be as good on theirs.
    assert losses["perfect"] == pytest.approx(min(losses.values()), abs=0.001)
    assert losses["weights"] < log(2)


def part_of(folder: Path, part: Callable[[dict[str, Any]], bool], to: Path) -> Path:
    to.mkdir()
    for name in ("trajectories.jsonl.gz", "steps.jsonl.gz"):
        rows = gzip.decompress((folder / name).read_bytes()).splitlines(keepends=True)
        (to / name).write_bytes(gzip.compress(b"".join(row for row in rows if part(json.loads(row)))))
    return to


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason="the logged trajectories are not here")
def test_agents_and_tasks_of_other_logs_are_measured_and_none_that_the_past_has(tmp_path: Path) -> None:
    tasks = sorted({each.task for each in sql_log(SMOKE).sessions})
    old = set(tasks[::2])
    data = part_of(SMOKE, lambda row: row["task"] in old and not row["agent"].startswith("vicuna"), tmp_path / "data")
    ran = CliRunner().invoke(app, ["sql-log", "--data", str(data), "--test", str(SMOKE), "--seeds", "1"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert set(found["solved"]) == {"none", "both", "raw-episodes", "LR"}
    assert found["points"].keys() == {"over_none", "over_raw_episodes", "over_LR"}
    assert found["points"]["over_none"]["mean"] == pytest.approx(
        100 * found["paired"]["both"]["none"]["new_tasks"]["mean"]
    )
    (stage,) = stages_of_others(sql_log(data), sql_log(SMOKE), 0, 0)
    assert {each.agent.partition("/")[0] for each in stage.measured["new_tasks"]} == {"vicuna"}
    assert {each.task for each in stage.measured["new_tasks"]} <= set(tasks) - old
    assert len(stage.past) == len(sql_log(data).sessions)


def test_other_logs_without_a_new_agent_at_a_new_task_are_refused(folder: Path) -> None:
    ran = CliRunner().invoke(app, ["sql-log", "--data", str(folder), "--test", str(folder)])
    assert ran.exit_code == 1
    assert "both missing from --data" in ran.output
