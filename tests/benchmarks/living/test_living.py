"""The instrument itself: a model that is scripted, in a database that the test makes."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.living.agent import Silent, play
from benchmarks.living.arms import ARMS
from benchmarks.living.command import measure
from benchmarks.living.figures import Past, of_states
from benchmarks.living.llm.model import Answers, Message, Model
from benchmarks.living.sql.world import Question, SqlWorld
from benchmarks.living.states import DRAWS, State
from benchmarks.living.world import Call, Ran, split
from tests.benchmarks.living.scripted import Scripted, reads_nothing, reads_what_it_is_told

# Seed of the draws: with it two agents of each place have read the schema, as with most seeds; with 0 one has.
TWO_READ = 1


def test_a_model_that_reads_is_told_from_one_that_does_not(world: SqlWorld, tmp_path: Path) -> None:
    arms = ("none", "full")
    file = tmp_path / "answers.db"
    with Scripted(reads_what_it_is_told, file) as model:
        report = measure(world, model, arms, states=6, sessions=6, seed=0, keep=tmp_path / "kept")
    first, after = report["first_call"], report["after_failure"]
    assert first["none"]["works"] == 0 and first["full"]["works"] == 1
    assert first["full"]["minus_none"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert first["full"]["n"] == 6 * DRAWS and first["full"]["characters"] > 0 and first["full"]["copied"] == 0
    assert after["none"]["same_failure"] == 1 and after["full"]["same_failure"] == 0
    assert after["none"]["same_call"] == 1 and after["full"]["same_call"] == 0
    assert after["full"]["minus_none"]["mean"] == -1.0
    sessions = report["sessions"]
    assert sessions["none"]["solved"] == 0 and sessions["full"]["solved"] == 1
    assert sessions["none"]["failed_calls"] == 5 == sessions["none"]["known_repeated"]
    assert sessions["full"]["failed_calls"] == 0
    kept = [json.loads(line) for line in (tmp_path / "kept" / "first_call.jsonl").read_text().splitlines()]
    assert [each["arm"] for each in kept[:2]] == ["none", "full"] and "plant" in kept[1]["told"]
    # A rerun needs no model.
    with Model("scripted", Answers(file), "http://127.0.0.1:9") as nobody:
        assert measure(world, nobody, arms, states=6, sessions=6, seed=0) == report
        assert nobody.asked == 0


def test_a_model_that_reads_is_helped_by_what_two_agents_have_seen(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.advice.advice.withheld", lambda *_: False)
    with Scripted(reads_what_it_is_told, tmp_path / "answers.db") as model:
        report = measure(world, model, ("none", "ours", "placebo"), states=6, sessions=0, seed=TWO_READ)
    for part in ("first_call", "after_failure"):
        assert report[part]["ours"]["works"] == 1, "the names of a place that two agents read are told to all"
        assert report[part]["none"]["works"] == report[part]["placebo"]["works"] == 0


def test_every_arm_runs(world: SqlWorld, tmp_path: Path) -> None:
    def says(messages: Sequence[Message]) -> str:
        return "- Look first: list the tables." if "distil" in messages[0][1] else reads_nothing(messages)

    with Scripted(says, tmp_path / "answers.db") as model:
        report = measure(world, model, ARMS, states=6, sessions=2, seed=TWO_READ)
    for part in ("first_call", "after_failure", "sessions"):
        assert tuple(report[part]) == ARMS
    first = report["first_call"]
    assert first["none"]["characters"] == 0 and first["bank"]["characters"] > 0 and first["names"]["told"] == 1
    after = report["after_failure"]
    assert after["ours"]["told"] > 0, "the fleet says nothing after a failure that its whole past had"
    # A model that reads nothing makes the same calls in all arms, so fleetlore speaks at the same ones.
    for part in (first, after):
        assert part["placebo"]["characters"] == pytest.approx(part["ours"]["characters"], abs=0.5)


def test_who_looks_first_reads_the_whole_schema_before_the_first_call(world: SqlWorld, tmp_path: Path) -> None:
    with Scripted(reads_what_it_is_told, tmp_path / "answers.db") as model:
        report = measure(world, model, ("none", "look first"), states=6, sessions=2, seed=0)
    for part in ("first_call", "after_failure"):
        assert (report[part]["none"]["right"], report[part]["look first"]["right"]) == (0, 1)
        assert report[part]["look first"]["right_minus_none"]["mean"] == 1.0
    assert report["sessions"]["look first"]["calls"] == 2, "the look-up is a call that it needs"


def test_half_of_each_place_is_held_out(world: SqlWorld) -> None:
    past, held_out = split(world.tasks, 0, 8)
    for some in (past, held_out):
        assert sorted(each.place for each in some) == ["garden"] * 8 + ["harbour"] * 8
    assert {each.id for each in past}.isdisjoint(each.id for each in held_out)
    assert [each.place for each in held_out[:4]] == ["garden", "harbour"] * 2
    assert split(list(reversed(world.tasks)), 0, 8) == (past, held_out)
    assert split(world.tasks, 1, 8).held_out != held_out
    short = split(world.tasks, 0, 1)
    assert len(short.past) == 2 and short.held_out == held_out


def test_a_call_of_another_question_is_a_copy(world: SqlWorld, tmp_path: Path) -> None:
    one, other = world.tasks[:2]
    call = Call("submit", "SELECT label FROM plant WHERE height > 0")
    with Scripted(lambda messages: str(call), tmp_path / "a.db") as model:
        played = play(world, one, model, Silent(), 0)
    assert played.solved
    past = Past(world, [played])
    again = call._replace(text="select label  from plant where height > 0;")
    assert past.copied(other, again) and not past.copied(one, again)
    assert past.copied(other, call._replace(text="SELECT label FROM plant WHERE height > <number>"))
    assert not past.copied(other, call._replace(text="SELECT label FROM plant WHERE height > 2"))
    ran = world.run(other, call)
    assert ran.solved, "all rows answer both questions: what is copied must not count"
    figures = of_states(world, past, [State(other, "none", "", call, again, ran)], "works")["none"]
    assert (figures["copied"], figures["right"], figures["works"]) == (1, 0, 1)


def test_the_database_is_read_and_not_written(world: SqlWorld) -> None:
    task = world.tasks[0]
    assert isinstance(task, Question)
    assert world.run(task, Call("sql", "SELECT * FROM plants")) == Ran("no such table: plants", "OperationalError")
    assert world.run(task, Call("sql", "DROP TABLE plant")).error
    assert world.run(task, Call("submit", "SELECT sql FROM sqlite_master")).error
    forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        world.query("garden", forever, seconds=0.1)
    assert world.query("garden", "SELECT date('now'), CURRENT_DATE").rows == [("2026-11-24", "2026-11-24")]
    assert "plant(label TEXT, height INTEGER)" in world.in_full(task)
