"""Silent failures: what contrasts show, what decides and what is measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from benchmarks.silent.cases import Case, read_cases
from benchmarks.silent.command import app
from benchmarks.silent.contrasts import Contrasts, Trait
from benchmarks.silent.decisive import Deciders, Deciding, Line
from benchmarks.silent.judged import abstained
from benchmarks.silent.measure import Spoken, parts_of, placebo, within
from benchmarks.silent.rivals import Every, Nearest, Usual
from fleetlore.errors import ConfigError
from tests.benchmarks.silent.made_shop import RULES, Call, order, refund, session, shop, write, wrong


def learned(cases: list[Case]) -> Contrasts:
    return Contrasts.learned(cases, Random(0))


def made(folder: Path, bad: list[Call], good: list[Call], **changed: Any) -> list[Case]:
    """Ten sessions that ended badly with some calls, and thirty that ended well with others."""
    sessions = [session(number, number >= 10, *(bad if number < 10 else good)) | changed for number in range(40)]
    return read_cases(write(folder, sessions, [wrong(number, fee=5) for number in range(10)]))


def test_a_look_up_that_successes_made_is_told_before_the_call_that_lacks_it(tmp_path: Path) -> None:
    cases = read_cases(shop(tmp_path))
    contrasts = learned(cases)
    [rule] = contrasts.rules
    assert rule.trait == Trait("process_refund", "first", "get_rules")
    assert (rule.well, rule.of, rule.well_else, rule.of_else) == (30, 30, 0, 10)
    [told] = contrasts.lines(cases[0])
    assert (told.place, told.make) == (1, "get_rules")
    assert told.text == (
        "Before `process_refund`: sessions that first called `get_rules` ended well 30 of 30 (0.89–1.00), "
        "the others 0 of 10 (0.00–0.28)."
    )
    assert list(contrasts.lines(cases[1])) == []


@pytest.mark.parametrize(
    ("bad", "good", "trait"),
    [
        ([refund(1, "late")], [refund(1)], Trait("process_refund", "with", "reason=gift")),
        ([order(1), refund(1, amount=28)], [order(1), refund(1)], Trait("process_refund", "unheard", "amount")),
        (
            [refund(1, confirm=False), refund(1, amount=28)],
            [refund(1, amount=28, confirm=False), refund(1, amount=28)],
            Trait("process_refund", "changed"),
        ),
        ([refund(1)], [refund(1), refund(2)], Trait("process_refund", "several")),
    ],
)
def test_each_sort_of_contrast_is_found(tmp_path: Path, bad: list[Call], good: list[Call], trait: Trait) -> None:
    assert trait in {rule.trait for rule in learned(made(tmp_path, bad, good)).rules}


def test_nobody_is_told_to_look_less(tmp_path: Path) -> None:
    assert learned(made(tmp_path, [order(1), refund(1)], [refund(1)])).rules == ()


def test_what_one_agent_did_is_no_rule(tmp_path: Path) -> None:
    assert learned(made(tmp_path, [refund(1, "late")], [refund(1)], agent="one")).rules == ()


def test_rewards_that_follow_nothing_make_no_rule(tmp_path: Path) -> None:
    sessions = [
        session(number, number % 2 > 0, refund(number, ("gift", "late")[number // 2 % 2])) for number in range(40)
    ]
    cases = read_cases(write(tmp_path, sessions, [wrong(number, fee=5) for number in range(0, 40, 2)]))
    assert learned(cases).rules == ()


def case(folder: Path, *calls: object, number: int = 1, **fields: object) -> tuple[Case, Deciding]:
    """A session that ended badly, among others that show what the tools do."""
    others = [
        session(8, True, order(8), refund(8, "gift", confirm=False, fee=0), refund(8, "late", confirm=False, fee=5)),
        session(9, True, order(9), refund(9)),
    ]
    made = session(number, False, *calls)  # type: ignore[arg-type]
    cases = read_cases(write(folder, [made, *others], [wrong(number, **fields)]))
    return cases[0], Deciders(cases).of(cases[0])


def line(text: str, place: int = 0, make: str = "") -> Line:
    return Line(place, text, 1.0, make)


def test_sessions_are_read_with_reward_and_failed_assertions(tmp_path: Path) -> None:
    found, _ = case(tmp_path, order(1), refund(1), total=3)
    assert (found.domain, found.well, [each.field for each in found.wrong]) == ("shop", False, ["total"])
    assert [(call.tool, call.looks, call.writes) for call in found.calls] == [
        ("get_order", True, False),
        ("process_refund", False, True),
    ]


def test_a_folder_without_failures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ended badly"):
        read_cases(write(tmp_path, [session(1, True, order(1))], []))


def test_previews_and_refused_calls_decide_nothing(tmp_path: Path) -> None:
    calls = (order(1), refund(1, confirm=False), refund(1, status="rejected"), refund(1, amount=25))
    _, deciding = case(tmp_path, *calls, refund_amount=20)
    assert deciding.place == 3
    assert deciding.tools == {"process_refund": {"amount"}}


def test_a_field_is_of_the_option_by_which_it_differs_in_the_log(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1, "late"), fee=0)
    assert deciding.tools == {"process_refund": {"reason"}}
    assert deciding.level([line("`process_refund` with `reason=late` ended badly")]) == "argument"
    assert deciding.level([line("`process_refund` with `amount=3` ended badly")]) == "tool"
    assert deciding.level([line("`get_order` with `reason=late`")]) == ""
    assert deciding.level([line("do not forget ORD-1")]) == "object"


def test_what_is_said_after_the_deciding_call_names_nothing(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1), order(1), fee=5)
    assert deciding.place == 1
    assert deciding.level([line("`process_refund`", place=1)]) == "tool"
    assert deciding.level([line("`process_refund`", place=2)]) == ""


def test_what_was_left_undone_is_decided_by_the_end(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), fee=5)
    assert deciding.place == 1
    assert deciding.tools.keys() == {"process_refund"}


def test_of_a_failure_without_assertions_the_last_change_decides(tmp_path: Path) -> None:
    _, deciding = case(tmp_path, order(1), refund(1), refund(1), order(1))
    assert (deciding.place, deciding.records) == (2, frozenset())


@pytest.mark.parametrize(
    ("told", "beside"),
    [
        (line("warned"), True),
        (line("", make="get_rules(topic=refund)"), False),
        (line("", make="get_rules(topic=late)"), True),
        (line("", place=2, make="get_rules(topic=refund)"), True),
        (line("", make="process_refund(reason=late)"), True),
    ],
)
def test_a_line_is_beside_the_point_unless_the_session_went_on_to_do_it(
    tmp_path: Path, told: Line, beside: bool
) -> None:
    sessions = [session(1, True, order(1), RULES, refund(1)), session(2, False, refund(2, "late"))]
    late = ("get_rules", {"topic": "late"}, {})
    cases = read_cases(write(tmp_path, [*sessions, session(3, True, late)], [wrong(2, fee=5)]))
    assert Deciders(cases).is_beside(told, cases[0]) is beside


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
