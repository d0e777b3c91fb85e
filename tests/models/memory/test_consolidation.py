from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.memory.candidate import QUORUM_AGENTS, Contributor, votes, weigh, weight
from tests import build as sessions
from tests.candidates import items_of
from tests.rows import for_each

DAY = 86_400.0
HALF_LIFE = 30 * DAY

contributors = st.lists(
    st.builds(
        Contributor,
        revision=st.just((1, 0.0)),
        side=st.sampled_from(["success", "failure"]),
        agent=st.integers(0, 5),
        seen=st.floats(0, 400 * DAY),
        way=st.sampled_from([0, 1, 2, 1 << 32, (1 << 32) + 1]),
    ),
    max_size=30,
)


def of_ways(sessions: list[Contributor]) -> dict[int, tuple[int, float]]:
    return votes([(each.way, each) for each in sessions], HALF_LIFE)


def test_a_session_weighs_half_for_each_half_life() -> None:
    assert [weight(-age * HALF_LIFE, 0.0, HALF_LIFE) for age in (0, 1, 2)] == [1.0, 0.5, 0.25]
    assert weight(-15 * DAY, 0.0, HALF_LIFE) == pytest.approx(2**-0.5)


@given(contributors, st.integers())
def test_the_order_of_sessions_decides_nothing(sessions: list[Contributor], seed: int) -> None:
    other = Random(seed).sample(sessions, len(sessions))
    assert weigh(sessions, HALF_LIFE) == weigh(other, HALF_LIFE)
    assert of_ways(sessions) == of_ways(other)


@given(contributors, st.lists(st.floats(0, 0.9 * DAY), min_size=30, max_size=30))
def test_hours_between_sessions_decide_nothing(sessions: list[Contributor], hours: list[float]) -> None:
    together = [each._replace(seen=1e9) for each in sessions]
    apart = [each._replace(seen=1e9 + after) for each, after in zip(sessions, hours, strict=False)]
    assert weigh(apart, HALF_LIFE) == weigh(together, HALF_LIFE)
    assert of_ways(apart) == of_ways(together)


def test_the_newer_side_wins_at_even_numbers() -> None:
    old = [Contributor((1, 0.0), "failure", 1, 0.0), Contributor((1, 0.0), "failure", 2, 0.0)]
    new = [Contributor((1, 0.0), "success", 3, 2 * HALF_LIFE)]
    assert weigh(old + new, HALF_LIFE) == {"success": 1.0, "failure": 0.5}


def call(arguments: str, result: str = "ok", error: str | None = None) -> Step:
    return sessions.call("sql", arguments, result, error=error)


def session(
    number: int, *steps: Step, good: bool = True, agent: str = "", goal: str = "count the cars", task: str = "cars"
) -> Judgment:
    label: Label = "success" if good else "failure"
    names = {"session": f"s{number}", "agent": agent or f"a{number}", "goal": goal, "task": task}
    return sessions.judgment(*steps, label=label, ended=9, **names)


TABLES, GUESS = call("SHOW TABLES", "cars_data"), call("SELECT 1 FROM cars", error="no such table: 'cars'")
COUNT, DESCRIBE = call("SELECT count(*) FROM cars_data", "406"), call("DESCRIBE cars_data")
SOLVED = [session(0, TABLES, COUNT), session(1, GUESS, TABLES, COUNT), session(2, TABLES, COUNT)]
OTHERS = [session(3, TABLES, DESCRIBE, COUNT), session(4, TABLES, DESCRIBE, COUNT)]


def items(judgments: list[Judgment]) -> dict[str, MemoryItem]:
    """By id, strategies alone."""
    return {item.id: item for item in items_of(*judgments) if item.kind == "strategy"}


def test_the_way_of_most_agents_is_told_without_the_calls_that_failed() -> None:
    (item,) = items([*SOLVED, *OTHERS]).values()
    assert item.content.splitlines() == [
        "What worked:",
        "1. sql(SHOW TABLES)",
        "2. sql(SELECT count(*) FROM cars_data)",
    ]
    assert (item.title, item.description) == ("How to: count the cars", "Solved in 2 calls.")
    assert (item.task, item.support, item.agents, item.against) == ("cars", 3, 3, 0)


def test_a_way_waits_for_a_quorum_of_agents_who_made_all_of_its_calls() -> None:
    assert items(SOLVED[: QUORUM_AGENTS - 1]) == items([*SOLVED[:2], *OTHERS]) == {}
    assert items([session(number, TABLES, COUNT, agent="one") for number in range(9)]) == {}
    assert items([session(number, TABLES, COUNT, task="") for number in range(3)]) == {}


@for_each("failed", (GUESS,), (TABLES, COUNT), (COUNT,))
def test_a_session_that_failed_says_nothing(failed: tuple[Step, ...]) -> None:
    assert items([*SOLVED, *[session(number, *failed, good=False) for number in range(5, 9)]]) == items(SOLVED)


def test_of_a_long_way_the_middle_is_left_out_and_repetitions_are_folded() -> None:
    steps = [call(f"STEP {letter}") for letter in "abcdefghij"]
    (item,) = items([session(number, steps[0], steps[0], *steps[1:]) for number in range(3)]).values()
    lines = item.content.splitlines()
    assert lines[1:3] == ["1. sql(STEP a) (×2)", "2. sql(STEP b)"] and lines[-1] == "10. sql(STEP j)"
    assert "… 2 more …" in lines


def test_sessions_of_other_goals_teach_nothing_together() -> None:
    def refund(number: int) -> Judgment:
        order = f"#W100{number}"
        steps = [sessions.call("refund", f'{{"order_id":"{order}","policy":"P-2024-7"}}')]
        return session(number, *steps, goal=f"refund {order} for ann@example.org", task="refund")

    assert not items([refund(number) for number in range(3)])


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_a_way_holds_the_calls_of_a_session_of_that_very_goal(made: list[tuple[str, int, int]]) -> None:
    """Goals that differ in a path alone were one strategy, with the title of one goal and the calls of another."""
    paths = ["/v2/report/daily", "/v2/accounts", "/v2/orders/7", "/v2/report/daily/2026"]
    goals = ["get the report", "list the users", "List the users", "get the report of May"]
    judged, ways = [], set()
    for number, (agent, goal, path) in enumerate(made):
        step = sessions.call("http", f'{{"method":"GET","path":"{paths[path]}"}}')
        judged.append(session(number, step, agent=agent, goal=goals[goal], task="two jobs"))
        ways.add((goals[goal].casefold(), paths[path]))
    for item in items(judged).values():
        goal = item.title.removeprefix("How to: ").casefold()
        assert any(goal == known and f'"{path}"' in item.content for known, path in ways)


def test_of_one_goal_the_values_are_the_tasks_own() -> None:
    steps = sessions.call("get_order", '{"order_id":"#W1001"}'), sessions.call("refund", '{"order_id":"#W1001"}')
    (item,) = items([session(number, *steps, task="refund") for number in range(3)]).values()
    assert "#W1001" in item.content
