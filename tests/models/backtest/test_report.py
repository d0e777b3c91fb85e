import pytest

from fleetlore.advice.advice import Advice
from fleetlore.advice.gate import Tip
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.names import FailureKind
from models.backtest import CallLog, advice_rows, hit_rate, known_errors, slices_of, split, told, ways_out
from tests.models.backtest.made import SILENT, call, heard, log
from tests.rows import for_each

GONE = "KeyError: 'cars'"


def test_what_was_said_is_held_against_what_came() -> None:
    of = log(call("select * from cars", error=GONE), call("select * from makers"), call("submit"), call("select 1"))
    right = SILENT._replace(named=FailureKind("x", ()), text="ten chars.", way_out="`makers`")
    wrong = SILENT._replace(named=FailureKind("y", ()), text="ten chars.")
    row = advice_rows([log(agent="b")], [heard(of, right, wrong, SILENT, SILENT)])["shop"]["A"]
    assert row == {
        "calls": 3,  # `submit` is no call
        "failed": 1 / 3,
        "warned": 2 / 3,
        "fail_warned": 0.5,
        "fail_unwarned": 0.0,
        "way_out_said": 1.0,
        "way_out": 1.0,
        "chars_call": 20 / 3,
        "chars_session": 20,
    }


def test_where_nothing_is_said_there_is_no_figure() -> None:
    of = log(call("select 1"), call("select * from cars", error="503 Service Unavailable"))
    row = advice_rows([], [heard(of)])["shop"]["S"]
    assert row["calls"] == 1  # a failure that passes by itself has no label
    assert (row["fail_warned"], row["way_out_said"], row["way_out"], row["chars_session"]) == (None, None, None, 0)


def test_an_error_of_another_agent_is_one_that_could_be_known() -> None:
    ann = log(call("select * from cars", error=GONE), agent="ann")
    other = log(call("select * from bikes", error="KeyError: 'bikes'"), agent="ben")
    again = log(call("select 1 from cars", error=GONE), agent="ben")
    assert known_errors([ann], [other, again])["shop"] == {"family": 1.0, "class": 0.5, "exact": 0.5}
    assert known_errors([ann], [ann])["shop"] == {"family": 0.0, "class": 0.0, "exact": 0.0}  # its own
    assert known_errors([ann], [log(call("select 1"))])["shop"] == {"family": None, "class": None, "exact": None}


@pytest.fixture
def cases() -> list[CallLog]:
    return [
        log(session=f"{source}/{agent}/{task}", agent=f"agent-{agent}", task=f"task-{task}", source=source)
        for source in ("shop", "bank")
        for agent in range(5)
        for task in range(10)
    ]


def test_the_slices_come_out_by_themselves(cases: list[CallLog]) -> None:
    train, test = split(cases, seed=1, share=0.2)
    slices = slices_of(train, test)
    # One of five agents and two of ten tasks of each source.
    assert {name: slices.count(name) for name in set(slices)} == {"A": 16, "T": 16, "AT": 4}
    assert len(train) == 64


def test_the_split_depends_on_seed_and_names_alone(cases: list[CallLog]) -> None:
    names = [{case.session for case in part} for part in split(cases, 1, 0.2)]
    assert names == [{case.session for case in part} for part in split(cases[::-1], 1, 0.2)]
    assert names != [{case.session for case in part} for part in split(cases, 2, 0.2)]


def test_set_ups_of_one_model_are_held_out_together() -> None:
    agents = [*(f"big/{each}" for each in "abcdef"), "small/react", "small/plan", "other/react", "last/react"]
    cases = [log(session=f"{agent} {task}", agent=agent, task=f"task-{task}") for agent in agents for task in range(10)]
    for seed in range(5):
        train, test = split(cases, seed, share=0.2)
        known = {case.agent for case in train}
        held = {case.agent for case in test} - known
        # Two of ten, and never one of two set-ups.
        assert len(held) == 2
        assert not {agent.partition("/")[0] for agent in held} & {agent.partition("/")[0] for agent in known}
    of_two, other = split(
        [case for case in cases if case.agent[0] in "bs"], 0, 0.1
    )  # none is small enough: the smaller
    assert {case.agent for case in other} - {case.agent for case in of_two} == {"small/react", "small/plan"}


def test_what_cannot_be_split_is_refused(cases: list[CallLog]) -> None:
    with pytest.raises(ConfigError, match="too few agents and tasks"):
        split(cases[:1], 1, 0.2)


NO_TABLE = "no such table: cars"


def test_a_way_out_is_the_next_call_of_the_tool_that_worked_with_words_not_seen() -> None:
    of = log(
        call("select * from cars", error=NO_TABLE),
        call("select * from car", error="no such table: car"),
        call("ls", tool="bash"),
        call("select * from car_makers"),
        call("select * from other", error="no such table: other"),
        call("select * from cars, car_makers"),  # nothing new
    )
    told = {0: SILENT._replace(way_out="`cars` -> `car_makers`"), 1: SILENT._replace(way_out="look")}
    (way_out,) = ways_out(heard(of, after=told))
    # The outcome of two failures counts once, for the first of them.
    assert way_out.new == {"car_makers"} and way_out.told == "`cars` -> `car_makers`"
    assert hit_rate([way_out]) == 1.0


@for_each("error", f"{NO_TABLE}; known: car_makers", "503 Service Unavailable")
def test_a_name_that_the_session_has_seen_and_a_passing_fault_need_no_way_out(error: str) -> None:
    of = log(call("select * from cars", error=error), call("select * from car_makers"))
    assert list(ways_out(heard(of))) == []


def test_silence_is_no_miss() -> None:
    of = log(call("select * from cars", error=NO_TABLE), call("select * from car_makers"))
    (told,) = ways_out(heard(of, after={0: SILENT._replace(way_out="`car_makers`")}))
    quiet = told._replace(told="")
    assert hit_rate([told, quiet]) == 1.0 and hit_rate([quiet]) is None
    (before,) = ways_out(heard(of, SILENT._replace(way_out="`car_makers`")))
    assert before.told == "`car_makers`", "what was told before the call counts where nothing is told after it"


WARNING = Tip(
    "w", "foreseen", (), kind="no such table: <name>", rejected=("cars",), chance=0.7, text="sql fails with `cars`."
)
WAY_OUT = Tip("i", "renamed", (), brings=("makers",), text="Use `makers` instead of `maker`.")


def test_what_is_told_is_a_warning_or_a_way_out_and_each_has_its_source() -> None:
    assert told(Advice()) == (None, "", "", ())
    said = told(Advice((WARNING,)))
    assert WARNING.text in said.text
    assert said.named == FailureKind("no such table: <name>", ("cars",))
    said = told(Advice((WAY_OUT,)))
    assert said.way_out == WAY_OUT.text and said.named is None and said.way_out in said.text
    assert told(Advice((WARNING, WAY_OUT))).shown == (WARNING, WAY_OUT)
