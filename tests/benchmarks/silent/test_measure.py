"""What is held out, what a rival is held to, and that one command says it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from benchmarks.silent.cases import Case, read_cases
from benchmarks.silent.command import app
from benchmarks.silent.decisive import Deciders, Line
from benchmarks.silent.judged import abstained
from benchmarks.silent.measure import Spoken, parts_of, placebo, within
from benchmarks.silent.rivals import Every, Nearest, Usual
from tests.benchmarks.silent.made_shop import RULES, order, refund, session, shop, write, wrong

DATA = Path(__file__).parents[4] / "shared" / "data" / "statebench"


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return read_cases(shop(tmp_path))


def test_each_task_is_held_out_once_and_never_learned_from_then(cases: list[Case]) -> None:
    held_out: Counter[str] = Counter()
    for part, past, held in parts_of(cases, 0):
        tasks = {case.logged.task for case in held}
        assert part == "tasks"  # of one domain none can be held out
        assert not tasks & {case.logged.task for case in past}
        assert len(past) + len(held) == len(cases)
        held_out.update(tasks)
    assert set(held_out.values()) == {1}
    assert len(held_out) == 40


def test_a_domain_is_held_out_whole(tmp_path: Path) -> None:
    for name in ("books", "shoes"):
        write(tmp_path, [session(n, n > 0, order(n)) for n in range(3)], [wrong(0, fee=1)], name)
    found = [(past, held) for part, past, held in parts_of(read_cases(tmp_path), 0) if part == "domains"]
    assert [({case.domain for case in past}, {case.domain for case in held}) for past, held in found] == [
        ({"shoes"}, {"books"}),
        ({"books"}, {"shoes"}),
    ]


def test_a_rival_keeps_its_surest_lines_up_to_the_allowance(cases: list[Case]) -> None:
    loud = [
        Spoken("tasks", case, (Line(0, "`process_refund`", 1 - number / 100),)) for number, case in enumerate(cases)
    ]
    deciders = Deciders(cases)
    assert within(loud, deciders, 0.5).beside_each == pytest.approx(0.5)
    assert sum(map(bool, within(loud, deciders, 0.5).levels)) == 6  # of sessions 0 to 20
    assert within(loud, deciders, 0.0).beside_each == 0


def test_rewards_that_are_shuffled_leave_nothing_to_say(cases: list[Case]) -> None:
    assert placebo(cases, 0, 5)["contrasts"]["share"] <= 0.05


def test_rivals_say_what_they_should(tmp_path: Path) -> None:
    sessions = [
        session(1, True, order(1), RULES, refund(1), goal="A gift came broken"),
        session(2, True, order(2), refund(2), goal="Where is it?"),
        session(3, False, order(3), refund(3, "late"), goal="The gift is broken"),
    ]
    *past, asking = read_cases(write(tmp_path, sessions, [wrong(3, fee=5)]))
    assert [line.text for line in Nearest(past).lines(asking)] == [
        "get_order(order_id)",
        "get_rules(topic=refund)",
        "process_refund(order_id, reason=gift, amount, confirm=True)",
    ]
    [usual] = Usual(past).lines(asking)
    assert (usual.place, usual.make) == (1, "process_refund(reason=gift)")
    [named] = Every().lines(asking)
    assert (named.place, named.text) == (1, "`process_refund` changes something.")


def test_judges_are_silent_on_no_session_with_a_reward_and_on_all_without_where_no_call_failed(
    cases: list[Case],
) -> None:
    assert abstained(cases, 0) == {
        "shop": {"sessions": 40, "rewarded": 0, "hidden": 40, "no_error": 40, "hidden_no_error": 40}
    }


def test_one_command_prints_it(tmp_path: Path) -> None:
    sheet = tmp_path / "said.tsv"
    ran = CliRunner().invoke(app, ["--data", str(shop(tmp_path, 24)), "--draws", "1", "--sheet", str(sheet), "--json"])
    assert ran.exit_code == 0, ran.output
    found = orjson.loads(ran.stdout)
    assert (found["sessions"], found["failed"]) == (24, 6)
    assert found["recall"].keys() == found["beside"].keys() == {"tasks", "tasks/shop"}
    assert {name: rival.keys() for name, rival in found["rivals"].items()} == dict.fromkeys(
        ("nearest", "usual", "today", "any"), found["recall"].keys()
    )
    assert found["recall"]["tasks"]["share"] == 1
    assert found["met"]["beside"] and found["met"]["judged"]
    read = [line.split("\t") for line in sheet.read_text().splitlines()]
    assert {task for arm, task, *_ in read if arm == "contrasts"} == {f"shop/{n}" for n in range(0, 24, 4)}
    assert CliRunner().invoke(app, ["--data", str(tmp_path), "--draws", "1"]).exit_code == 0


@pytest.mark.real_data
def test_the_real_sessions_are_read() -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is missing")
    cases = read_cases(DATA)
    assert (len(cases), sum(not case.well for case in cases)) == (199, 40)
    deciders = Deciders(cases)
    assert all(deciders.of(case).tools for case in cases if not case.well)
    judged = abstained(cases, 0)
    assert [count["rewarded"] for count in judged.values()] == [0, 0, 0]
    assert sum(count["hidden"] for count in judged.values()) == 199
