from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.trajectory import Feedback, Step, Trajectory
from models.judge.prefix import first_calls, first_steps


def session(roles: str) -> Trajectory:
    """`t` is a tool step, `m` a message."""
    return trajectory(
        *(call("x") if role == "t" else Step(sequence=0, role="user") for role in roles),
        task="k",
        started=1.0,
        ended=9.0,
        ending="failure",
        reward=0.0,
        events=99,
        feedback=Feedback(session="s", label="failure", time=1.0, by="x"),
    )


@pytest.mark.parametrize(
    ("roles", "calls", "kept"),
    [("mtmtm", 1, 2), ("mtmtm", 2, 4), ("mtmt", 2, None), ("mtm", 2, None), ("", 1, None), ("ttt", 2, 2)],
)
def test_a_beginning_ends_with_a_tool_step_after_which_the_session_goes_on(
    roles: str, calls: int, kept: int | None
) -> None:
    beginning = first_calls(session(roles), calls)
    assert (None if beginning is None else len(beginning.steps)) == kept


def test_what_only_the_end_tells_is_taken_out() -> None:
    beginning = first_calls(session("tmt"), 1)
    assert beginning is not None
    assert (beginning.ending, beginning.reward, beginning.feedback) == ("unknown", None, None)
    assert beginning.events == 1 and beginning.ended == beginning.started


def test_a_session_begins_with_its_first_call() -> None:
    with pytest.raises(ValueError, match="calls is 0"):
        first_calls(session("tt"), 0)


@given(st.text("tm", max_size=12), st.integers(1, 6))
def test_first_steps_hold_no_more_calls_than_asked_for(roles: str, calls: int) -> None:
    steps = first_steps(session(roles), calls)
    assert sum(step.role == "tool" for step in steps) == min(calls, roles.count("t"))
    assert steps == session(roles).steps[: len(steps)]
    assert first_steps(session(roles), None) == session(roles).steps
