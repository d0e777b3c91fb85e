"""What sessions contribute to an item is a set that stays small. A way is told once a quorum made it."""

from collections.abc import Sequence
from random import Random
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.distil.distiller import distil
from models.memory.candidate import QUORUM_AGENTS, Candidate, Contributor, votes, weigh
from models.memory.item_state import EXAMPLES, SAMPLED_SESSIONS, ItemState
from tests import build as sessions
from tests import candidates
from tests.build import judgment
from tests.candidates import items_of
from tests.rows import for_each

MAX_FIELD_BYTES = 65_535  # of Milvus


def candidate(session: str, seen: int = 0, **changes: Any) -> Candidate:
    values: dict[str, Any] = {"kind": "strategy", "side": "success", "seen": float(seen), "task": "t"}
    values["agent"] = f"agent of {session[:1]}"
    if changes.get("kind") != "recovery":
        values |= {"content": f"content of {session}", "calls": (f"call of {session}",)}
    return candidates.candidate(session, **(values | changes))


# Either many sessions that are judged once (as nearly all are), or few that are judged again and again.
ONCE = st.builds(
    lambda session, seen: candidate(session, seen, side=("success", "failure")[len(session) % 2]),
    st.text("abc", min_size=1, max_size=4),
    st.integers(0, 3),
)
AGAIN = st.builds(
    lambda session, seen, side, revision: candidate(session, seen, side=side, revision=revision),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.sampled_from(["success", "failure", "withdrawn"]),
    st.tuples(st.integers(1, 2), st.sampled_from([0.0, 5.0])),
)


def state(candidates: Sequence[Candidate]) -> ItemState:
    merged = ItemState()
    for each in candidates:
        merged.merge(each)
    return merged


MANY = st.one_of(st.lists(ONCE, max_size=12), st.lists(AGAIN, max_size=12))
# Not one of each: a session that is judged again once the examples are full leaves a gap among them until a replay.
TWO = st.one_of(*[st.tuples(st.lists(each, max_size=12), st.lists(each, max_size=12)) for each in (ONCE, AGAIN)])


@given(MANY, st.randoms(use_true_random=False))
def test_what_is_merged_is_a_set_that_survives_json(candidates: list[Candidate], random: Random) -> None:
    merged = ItemState()
    for each in candidates:
        before = merged.to_json()
        assert merged.merge(each) == (merged.to_json() != before)
    assert not any([merged.merge(each) for each in candidates])
    again = [*candidates, *candidates[:5]]
    random.shuffle(again)
    read = ItemState.from_json(merged.to_json())
    assert state(again) == read == merged and read.to_item() == merged.to_item()
    assert state(again).to_json() == merged.to_json()


@given(TWO)
def test_two_states_join_to_that_of_all_contributions(both: tuple[list[Candidate], list[Candidate]]) -> None:
    some, others = both
    joined = state(some)
    joined.join(state(others))
    assert joined.to_json() == state([*some, *others]).to_json()


def test_it_stays_small_and_counts_on() -> None:
    merged = state([candidate(f"{n}", n % 7, kind="recovery") for n in range(1000)])
    assert len(merged.contributors) == SAMPLED_SESSIONS and len(merged.examples["success"]) == EXAMPLES
    assert len(merged.to_json()) < 10_000
    item = merged.to_item()
    assert item is not None and 600 < item.support < 1500


def test_it_says_when_it_was_first_and_last_seen() -> None:
    item = state([candidate(f"{n}", kind="recovery", seen=float(seen)) for n, seen in enumerate((5, 3, 9))]).to_item()
    assert item is not None and (item.first_seen, item.last_seen) == (5.0, 9.0)  # the second agent's, and the newest
    assert MemoryItem.from_json(item.to_json()) == item


def test_a_state_fits_its_field_of_the_store_at_its_fullest() -> None:
    wide = "語"  # three bytes of UTF-8, and nothing in a log has more of them
    step = Step(
        sequence=0, role="tool", tool=wide * 85, arguments=wide * 300, result=wide * 300, error_message=wide * 300
    )
    merged = ItemState()
    for number in range(SAMPLED_SESSIONS + 20):
        steps = tuple(replace(step, pattern=f"{n}" if n % 2 == 0 else None, error_type="E") for n in range(32))
        judged = judgment(
            *steps,
            label="success",
            session=f"{number}" * 10,
            agent=f"{wide * 78}{number % 7}",
            task=wide * 256,
            goal=wide * 600,
            ended=1.7e9 + number / 7,
            ending="failure",
        )
        (strategy,) = [each for each in distil(judged) if each.kind == "strategy"]
        merged.merge(strategy)
    assert len(merged.to_json()) < MAX_FIELD_BYTES
    item = merged.to_item()
    assert item is not None and len(item.to_json()) < MAX_FIELD_BYTES


def test_of_two_that_contradict_each_other_the_newer_wins() -> None:
    month = HALF_LIFE_SECONDS
    old = [candidate(name, kind="recovery", seen=0.0) for name in "abc"]
    new = candidate("d", kind="recovery", side="failure", seen=2 * month, content="")
    assert state([*old, new]).to_item() is None
    item = state([*old, replace(new, seen=month)]).to_item()
    assert item is not None and (item.support, item.against) == (3, 1)


def test_a_strategy_in_its_own_words_needs_no_quorum() -> None:
    item = state([candidate("a", calls=(), content="Look before you write.")]).to_item()
    assert item is not None and item.content == "Look before you write."


def test_a_row_of_an_earlier_release_is_read_without_the_sessions_that_were_shown_the_item() -> None:
    merged = state([candidate("a"), candidate("b")])
    row = orjson.loads(merged.to_json()) | {"shown_to": [[7, 8]]}
    assert ItemState.from_json(orjson.dumps(row)) == merged


def test_a_withdrawal_is_nothing_that_was_seen() -> None:
    found = state([candidate("a", 1), candidate("b", 9, side="withdrawn")])
    assert found.last_seen == 1.0


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


@given(contributors, st.lists(st.floats(0, 0.9 * DAY), min_size=30, max_size=30))
def test_hours_between_sessions_decide_nothing(sessions: list[Contributor], hours: list[float]) -> None:
    together = [each._replace(seen=1e9) for each in sessions]
    apart = [each._replace(seen=1e9 + after) for each, after in zip(sessions, hours, strict=False)]
    assert weigh(apart, HALF_LIFE) == weigh(together, HALF_LIFE)
    assert of_ways(apart) == of_ways(together)


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
