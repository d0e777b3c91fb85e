"""Which calls are preferred to which, and what no version may learn."""

from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.wire.trajectory import CUT, Judgment, Step
from models.policy.pairs import Pair, preference_pairs, session_row
from tests.build import call, judgment
from tests.cpu import costs_less_than
from tests.models.policy.made import ERROR, fleet, select, session
from tests.rows import for_each


def query(message: dict[str, object]) -> str:
    (made,) = message["tool_calls"]
    found: str = made["function"]["arguments"]["query"]
    return found


def select_of(name: str) -> str:
    return f"SELECT label FROM {name}"


def learned(judgments: list[Judgment], quorum: int = 2) -> list[tuple[str, str]]:
    return [(query(pair.worked), query(pair.failed)) for pair in preference_pairs(judgments, quorum)]


def test_a_call_that_got_another_principal_past_the_failure_is_preferred_before_it_and_after_it() -> None:
    past = [session(n, past=True, name="heron", agent=f"p{n}") for n in (0, 4)]
    stuck = session(8, past=False, name="heron", agent="p8")
    found = [pair for pair in preference_pairs([*past, stuck], 2) if pair.agents[0] == "p8"]
    assert [len(pair.prompt) for pair in found] == [1, 3, 5], "each state once"
    before, after, _ = found
    assert query(before.worked) == query(after.worked) == "SELECT label FROM heron"
    assert query(before.failed) == query(after.failed) == "SELECT label FROM herons"
    assert [each["role"] for each in before.prompt] == ["user"]
    assert [each["role"] for each in after.prompt] == ["user", "assistant", "tool"]
    assert after.prompt[-1]["content"] == ERROR.format("heron")
    assert before.sessions[0] != before.sessions[1] and before.agents[1] in ("p0", "p4")
    assert before.ended == 1_008.0


def test_pairs_are_a_function_of_the_set_of_sessions() -> None:
    some = fleet(24)
    assert preference_pairs(some, 2) == preference_pairs(some[::-1], 2) != []


def test_a_word_that_one_principal_alone_used_is_learned_by_nobody_else() -> None:
    def made(number: int, agent: str, *, past: bool) -> Judgment:
        return session(number, past=past, name="heron", agent=agent, goal="List all labels")

    one, other = made(0, "p0:1", past=True), made(4, "p4", past=False)
    assert learned([one, other]) == []
    assert learned([one, made(12, "p0:2", past=True), other]) == [], "two agents of one principal are one"
    assert learned([one, other], quorum=1) != [], "where all agents have one owner"
    assert (select_of("heron"), select_of("herons")) in learned([one, made(8, "p8", past=True), other])


def test_a_word_of_the_asker_needs_no_quorum() -> None:
    one = session(0, past=True, name="heron", agent="p0", goal="List all labels")
    other = session(4, past=False, name="heron", agent="p4", goal="List the labels of the heron")
    assert {pair.agents for pair in preference_pairs([one, other], 2)} == {("p4", "p0")}


def test_nothing_is_learned_of_one_session_or_another_task_or_another_failure() -> None:
    own = session(0, past=True, name="heron", agent="p0")
    assert preference_pairs([own], 1) == []
    assert preference_pairs([own, session(1, past=False, name="heron", agent="p1")], 1) == []
    trajectory = session(4, past=False, name="heron", agent="p4").trajectory
    wrong = call("sql", select("herons"), error="permission denied", error_type="OperationalError")
    denied = judgment(wrong, wrong, label="failure", session="s4", agent="p4", task=trajectory.task)
    assert preference_pairs([own, denied], 1) == []


def test_identities_of_end_users_are_masked_in_all_texts() -> None:
    mail = "ada.lovelace@example.org"

    def mailing(number: int, past: bool) -> Judgment:
        wrong = call("sql", select(f"herons where mail = '{mail}'"), error=ERROR.format("heron"), error_type="Error")
        right = call("sql", select(f"heron where mail = '{mail}'"), result=f"[('{mail}',)]")
        steps = (wrong, right) if past else (wrong, wrong)
        label = "success" if past else "failure"
        return judgment(*steps, label=label, session=f"s{number}", agent=f"p{number}", task="t", goal=f"Find {mail}")

    pairs = preference_pairs([mailing(0, True), mailing(1, True), mailing(2, False)], 2)
    assert pairs and mail not in repr(pairs) and "<email>" in repr(pairs)


def test_a_call_that_deletes_is_preferred_by_nobody() -> None:
    def dropping(number: int) -> Judgment:
        wrong = call("sql", '{"query": "DROP TABLE herons"}', error=ERROR.format("herons"), error_type="Error")
        right = call("sql", '{"query": "DROP TABLE heron"}')
        return judgment(wrong, right, label="success", session=f"s{number}", agent=f"p{number}", task="t")

    assert preference_pairs([dropping(n) for n in range(4)], 1) == []


def test_a_stuck_session_teaches_a_few_pairs() -> None:
    past = [session(n, past=True, name="heron", agent=f"p{n}") for n in (0, 4)]
    stuck = session(8, past=False, name="heron", agent="p8")
    steps = stuck.trajectory.steps[:1] * 50
    many = replace(stuck, trajectory=replace(stuck.trajectory, steps=steps))
    of_stuck: list[Pair] = [pair for pair in preference_pairs([*past, many], 2) if pair.agents[0] == "p8"]
    assert len(of_stuck) == 4


NO_COLUMN = "no such column: nme"
WRONG, RIGHT = "SELECT nme FROM cars WHERE id = 1", "SELECT name FROM cars WHERE id = 1"
SPOKEN = Step(sequence=0, role="assistant", result="I look at the names.")


def recovery(session: str = "s", **fields: Any) -> Judgment:
    steps = (SPOKEN, call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, "Beetle"))
    return judgment(*steps, **{"session": session, "agent": "a", "task": "cars", "goal": "Name of car 1?"} | fields)


ABOUT: dict[str, Any] = {"task": "cars", "goal": "Name of car 1?"}
STUCK = judgment(call("sql", WRONG, error=NO_COLUMN), session="stuck", label="failure", **ABOUT)


def test_a_session_is_its_messages_and_its_label() -> None:
    row = session_row(recovery())
    assert (row["session"], row["agent"], row["label"]) == ("s", "a", True)
    assert [each["role"] for each in row["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [row["messages"][place]["content"] for place in (1, 2, 4)] == ["I look at the names.", NO_COLUMN, "Beetle"]
    assert session_row(recovery(label="failure"))["label"] is False


def test_a_row_is_what_preference_trainers_read() -> None:
    row, *_ = [pair.row() for pair in preference_pairs([recovery(), STUCK], 1)]
    assert row["prompt"] == [{"role": "user", "content": "Name of car 1?"}]  # and not what the model said of its call
    sides = [row[side][0]["tool_calls"][0]["function"]["arguments"] for side in ("chosen", "rejected")]
    assert sides == [{"input": RIGHT}, {"input": WRONG}]


@for_each("less", "make build || true", "make build 2>/dev/null", "make build --skip tests")
def test_an_attempt_at_less_is_no_repair(less: str) -> None:
    """It works because it leaves out what failed, or hides it: no model should learn to prefer that."""
    failed = call("bash", "make build", error="make: *** No rule to make target 'build'. Stop.")
    stuck = judgment(failed, session="stuck", task="t", goal="g", label="failure")

    def repaired(by: str) -> Judgment:
        return judgment(failed, call("bash", by, "done"), session="s", task="t", goal="g")

    assert not preference_pairs([repaired(less), stuck], 1)
    assert preference_pairs([repaired("make all"), stuck], 1)


SPOILT = {
    "guarded": recovery(guard="no-deletes"),
    "incomplete": recovery(missing=2),
    "continued": recovery(ending="continued"),
    "part": recovery(part=1),
    "abstained": recovery(label="abstained"),
    "recalled": recovery(goal="[fleet-memory] Name of car 1?"),
    "advised": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", RIGHT, advice=("item1",)), **ABOUT),
    "cut": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT}{CUT}"), **ABOUT),
    "redacted": judgment(call("sql", WRONG, error=NO_COLUMN), call("sql", f"{RIGHT} -- [redacted:password]"), **ABOUT),
    "transient": judgment(
        call("sql", WRONG, error="connection timed out", transient=True), call("sql", RIGHT), **ABOUT
    ),
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_what_a_model_must_not_learn_is_left_out(spoilt: Judgment) -> None:
    assert preference_pairs([recovery(), STUCK], 1)
    assert not preference_pairs([spoilt, STUCK], 1)


def test_a_call_nested_too_deep_ends_no_export() -> None:
    deep = judgment(call("sql", '{"query":' + "[" * 300 + "]" * 300 + "}", "Beetle"), session="deep", goal="g")
    assert preference_pairs([deep, recovery(), STUCK], 1) and session_row(deep)["messages"]


def test_a_long_session_of_failures_that_nobody_else_met_is_read_in_linear_time() -> None:
    texts = [" ".join(f"w{number}x{word}" for word in range(250)) for number in range(200)]
    failed = [call("sql", f"SELECT {text}", error=f"no such thing: {text}") for text in texts]
    alone = judgment(*failed, call("sql", "SELECT 1", "1"))
    assert costs_less_than(0.6, lambda: preference_pairs([alone], 2))


def test_two_long_sessions_of_failures_that_each_other_s_ways_do_not_fit_are_read_in_linear_time() -> None:
    def long(agent: str) -> Judgment:
        texts = [" ".join(f"{agent}{number}x{word}" for word in range(150)) for number in range(200)]
        failed = [call("sql", f"SELECT {text}", error="no such thing: mode") for text in texts]
        got_past = call("sql", f"SELECT {agent}wrong", error="no such thing: mode"), call("sql", f"SELECT {agent}right")
        return judgment(*failed, *got_past, agent=agent, session=agent, task="t")

    sessions = [long("a"), long("b")]
    assert costs_less_than(1.0, lambda: preference_pairs(sessions, 2))
