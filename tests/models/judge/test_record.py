from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.trajectory import Feedback, Trajectory, Verdict
from models.judge.record import FEWEST_CASES, SAMPLED_CASES, Case, JudgeRecord, cases_of, tool_family
from tests import build as sessions

SUCCESS, FAILURE = "success", "failure"


def record(*cases: tuple[str, Case]) -> JudgeRecord:
    made = JudgeRecord("rules", "rules-1", "sql")
    for session, case in cases:
        made.add(session, case)
    return made


def case(said: str, truth: str, events: int = 1) -> Case:
    return Case((events, 0.0), said, truth)


CASES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.builds(
            lambda said, truth, events: case(said, truth, events),
            st.sampled_from([SUCCESS, FAILURE]),
            st.sampled_from([SUCCESS, FAILURE]),
            st.integers(1, 3),
        ),
    ),
    max_size=12,
)


@given(CASES, CASES)
def test_a_record_follows_from_the_set_of_cases(first: Any, second: Any) -> None:
    a, b = record(*first), record(*second)
    together = record(*second, *first, *first)
    a.merge(b)
    assert a.to_json() == together.to_json() == JudgeRecord.from_json(together.to_json()).to_json()
    assert a.silenced == together.silenced


def test_a_session_that_is_no_case_any_more_is_taken_out_and_one_that_never_was_leaves_no_trace() -> None:
    made = record(("s", case(FAILURE, SUCCESS)))
    assert made.add("s", Case((2, 0.0))) and not made.matrix
    assert not made.add("t", Case((2, 0.0))) and len(made.cases) == 1


def test_it_stays_small() -> None:
    made = record(*((f"s{n}", case(FAILURE, FAILURE)) for n in range(3 * SAMPLED_CASES)))
    assert sum(made.matrix.values()) == SAMPLED_CASES
    assert len(made.to_json()) < 30_000


@pytest.mark.parametrize(
    ("right", "wrong", "silenced"),
    [
        (0, FEWEST_CASES - 1, False),  # too few to say
        (0, FEWEST_CASES, True),
        (8, 2, False),  # a fifth, as it claims
        (4, 4, True),
        (80, 20, False),
        (70, 30, True),
    ],
)
def test_who_is_surely_wrong_too_often_is_not_heard_on_that_claim_alone(right: int, wrong: int, silenced: bool) -> None:
    cases = [(f"r{n}", case(FAILURE, FAILURE)) for n in range(right)]
    cases += [(f"w{n}", case(FAILURE, SUCCESS)) for n in range(wrong)]
    cases += [(f"s{n}", case(SUCCESS, SUCCESS)) for n in range(20)]
    assert record(*cases).silenced == ({FAILURE} if silenced else set())


@pytest.mark.parametrize("lies", [20, 2_000])
def test_one_agent_silences_no_judge_for_others_however_often_its_reward_contradicts(lies: int) -> None:
    honest = [(f"h{n}", Case((1, 0.0), SUCCESS, SUCCESS, agent=n + 1)) for n in range(10)]
    lied = [(f"l{n}", Case((1, 0.0), SUCCESS, FAILURE, agent=77)) for n in range(lies)]
    assert not record(*honest, *lied).silenced
    assert record(*lied).silenced == {SUCCESS}  # alone it is heard


def trajectory(feedback: Literal["success", "failure"] | None = None, tools: str = "sql sql bash") -> Trajectory:
    return sessions.trajectory(
        *(sessions.call(tool) for tool in tools.split()),
        events=4,
        feedback=feedback and Feedback(session="s", label=feedback, time=5.0, by="b"),
    )


def vote(source: Any, label: Any) -> Verdict:
    return Verdict(label=label, probability=0.9, source=source, version=f"{source}-1")


def said(found: Any) -> dict[str, tuple[str, str]]:
    return {verdict.version: (case.said, case.truth) for verdict, case in found}


def test_who_knows_better_judges_the_judges() -> None:
    votes = (vote("reward", SUCCESS), vote("rules", FAILURE))
    assert said(cases_of(trajectory(), votes, ())) == {"rules-1": (FAILURE, SUCCESS)}
    corrected = said(cases_of(trajectory("failure"), votes, ()))
    assert corrected == {"reward-1": (SUCCESS, FAILURE), "rules-1": (FAILURE, FAILURE)}
    assert said(cases_of(trajectory(), votes[1:], ())) == {}
    # The rules spoke on the session as it was known before.
    assert said(cases_of(trajectory("failure"), votes[:1], votes)) == {
        "reward-1": (SUCCESS, FAILURE),
        "rules-1": ("", ""),
    }


@pytest.mark.parametrize(
    ("tools", "family"),
    [
        ("", ""),
        ("sql sql bash", "sql"),
        ("b a", "a"),
        ("github__create_issue", "github"),
        ("fs.read", "fs"),
        ("__init__", "__init__"),
        ("get_order", "get_order"),
    ],
)
def test_tools_of_one_server_are_a_family(tools: str, family: str) -> None:
    assert tool_family(trajectory(tools=tools)) == family
