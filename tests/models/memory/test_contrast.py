from __future__ import annotations

from itertools import permutations

from fleetlore.testing import sessions
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.distil.distiller import distil
from models.memory.item_state import ItemState


def call(arguments: str, result: str = "ok", error: str | None = None) -> Step:
    return sessions.call("sql", arguments, result, error=error)


def attempt(number: int, good: bool, *steps: Step, group: str = "g", probability: float | None = None) -> Judgment:
    return sessions.judgment(
        *steps,
        label="success" if good else "failure",
        probability=probability,
        session=f"s{number}",
        agent=f"a{number}",
        goal="count the cars",
        ended=9,
        group=group,
    )


TABLES, GUESS = call("SHOW TABLES", "cars_data"), call("SELECT 1 FROM cars", error="no such table: 'cars'")
COUNT, WRONG = call("SELECT count(*) FROM cars_data", "406"), call("SELECT 406", "406 rows of 1")
ATTEMPTS = [
    attempt(0, True, TABLES, COUNT),
    attempt(1, True, GUESS, TABLES, COUNT),
    attempt(2, False, GUESS, WRONG),
    attempt(3, False, GUESS, WRONG),
    attempt(4, True, TABLES, call("DESCRIBE cars_data"), COUNT),
]


def items(judgments: list[Judgment]) -> dict[str, MemoryItem]:
    """By id, strategies alone."""
    states: dict[str, ItemState] = {}
    for judgment in judgments:
        for each in distil(judgment):
            states.setdefault(each.item_id, ItemState.empty()).merge(each)
    made = [item for state in states.values() if (item := state.to_item()) is not None]
    return {item.id: item for item in made if item.kind == "strategy"}


def test_attempts_of_a_group_are_told_apart_by_what_several_did() -> None:
    (item,) = items(ATTEMPTS).values()
    assert item.content.splitlines() == [
        "What worked:",
        "1. sql(SHOW TABLES)",
        "2. sql(SELECT count(*) FROM cars_data)",
        "A session that failed did not do 2, 1 (several of 3 did)",
        "Only in a session that failed (several of 2 did):",
        "- sql(SELECT 406)",
        "- sql(SELECT 1 FROM cars)",
        "Error met there: no such table: 'cars'",
    ]
    assert (item.task, item.support, item.agents) == ("g", 2, 2)


def test_of_a_pair_the_way_alone_is_told() -> None:
    (item,) = items(ATTEMPTS[1:3]).values()
    lines = item.content.splitlines()
    assert [line[3:] for line in lines if line[0].isdigit()] == [
        "sql(SHOW TABLES)",
        "sql(SELECT count(*) FROM cars_data)",
    ]
    assert not [line for line in lines if "failed" in line or "Error" in line]
    assert items([attempt(number, number < 2, COUNT, group="") for number in range(4)]) == {}


def test_a_call_of_the_way_that_worked_is_no_mark_of_failure() -> None:
    # What may be an end user's is `<id>` by then, of whatever kind it is (`models.memory.identities`).
    def session(name: str, good: bool, *arguments: str) -> Judgment:
        steps = [sessions.call("get_user", each) for each in arguments]
        label: Label = "success" if good else "failure"
        return sessions.judgment(*steps, label=label, session=name, agent=name, goal=f"refund {name}", task="refund")

    worked = [
        session("a", True, '{"user_id":"ann_1001"}', "done"),
        session("b", True, '{"user_id":"bob_1002"}', "done"),
    ]
    failed = [
        session("c", False, '{"user_id":"<id>"}', "guess"),
        session("d", False, '{"user_id":"<id>"}', "guess"),
    ]
    (item,) = items([*worked, *failed]).values()
    only_failed = item.content.partition("Only in a session that failed")[2]
    assert "guess" in only_failed and "<id>" not in only_failed


def test_a_missing_step_shows_where_no_call_failed_and_one_flipped_verdict_does_not_hide_it() -> None:
    verify = call("SELECT * FROM audit", "done")
    sessions_ = [
        attempt(number, number < 5, *([TABLES, COUNT, verify] if number < 5 else [TABLES, COUNT]))
        for number in range(8)
    ]
    flipped = attempt(8, False, TABLES, COUNT, verify)
    (item,) = items([*sessions_, flipped]).values()
    lines = item.content.splitlines()
    assert "3. sql(SELECT * FROM audit)" in lines and "Only in" not in item.content
    assert any(line.startswith("A session that failed did not do 3") for line in lines)


def test_an_unsure_attempt_says_nothing() -> None:
    unsure = attempt(9, False, COUNT, probability=0.5)
    assert items([*ATTEMPTS, unsure]) == items(ATTEMPTS)


def test_no_order_and_no_repetition_makes_another_item() -> None:
    expected = items(ATTEMPTS)
    for order in permutations(ATTEMPTS, 3):
        assert items([*order, *ATTEMPTS]) == expected


def test_what_differs_between_sessions_of_a_task_with_other_goals_is_not_quoted() -> None:
    def session(name: str, order: str, label: Label, goal: str) -> Judgment:
        steps = [
            sessions.call("get_order", f'{{"order_id":"{order}"}}'),
            sessions.call("refund", f'{{"order_id":"{order}","policy":"P-2024-7"}}'),
        ]
        return sessions.judgment(
            *steps[: 2 if label == "success" else 1], label=label, session=name, agent=name, goal=goal, task="refund"
        )

    def said(*goals: str) -> str:
        judged = [session("a", "#W1001", "success", goals[0]), session("b", "#W1002", "success", goals[1])]
        (item,) = items([*judged, session("c", "#W1003", "failure", goals[2])]).values()
        return item.content

    told = said("refund #W1001 for ann@example.org", "refund #W1002", "refund #W1003")
    assert "P-2024-7" in told and "<order id>" in told
    assert not any(private in told for private in ("#W100", "ann@"))
    # Of one goal the values are the task's own.
    assert "#W100" in said("refund", "refund", "refund")
