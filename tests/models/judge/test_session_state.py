from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.trajectory import DIGEST_BYTES, Feedback, Step, Trajectory, Verdict
from models.judge import MAX_TAUGHT, Opinion, SessionState
from models.memory.candidate import Candidate
from tests import build as sessions
from tests.candidates import candidate
from tests.rows import for_each

MILVUS_FIELD_BYTES = 65_535


def trajectory(events: int = 3, feedback: Feedback | None = None, **changes: Any) -> Trajectory:
    return sessions.trajectory(*changes.pop("steps", ()), events=events, feedback=feedback, **changes)


def feedback(label: Literal["success", "failure"], time: float) -> Feedback:
    return Feedback(session="s", label=label, time=time, by="b")


def opinion(events: int, label: Literal["success", "failure"] = "success") -> Opinion:
    verdict = Verdict(label=label, probability=0.75, source="llm", version="l")
    return Opinion(session="s", events=events, verdict=verdict)


def taught(item: str) -> Candidate:
    return candidate(item_id=item, revision=(3, 0.0))


VALUES = st.one_of(
    st.builds(trajectory, st.integers(1, 3), st.none() | st.builds(feedback, st.just("failure"), st.just(4.0))),
    st.builds(feedback, st.sampled_from(["success", "failure"]), st.sampled_from([1.0, 2.0])),
    st.builds(opinion, st.integers(1, 3), st.sampled_from(["success", "failure"])),
)


@given(st.lists(VALUES, max_size=8), st.randoms(use_true_random=False), st.integers(0, 8))
def test_it_follows_from_the_set_of_what_came(values: list[Any], rng: Any, stored_after: int) -> None:
    def merged(values: list[Any]) -> SessionState:
        state = SessionState()
        for place, value in enumerate(values):
            if place == stored_after:
                encoded = state.trajectory and state.trajectory.to_json()
                state = SessionState.from_json(state.to_json(encoded))
            state.merge(value)
        return state

    shuffled = [*values, *values[:3]]
    rng.shuffle(shuffled)
    assert merged(values) == merged(shuffled)


def test_a_newer_state_of_the_session_makes_an_opinion_void() -> None:
    state = SessionState()
    state.merge(trajectory(3))
    state.merge(opinion(3))
    assert [vote.source for vote in state.said] == ["llm"]
    assert state.merge(trajectory(4))
    assert state.said == ()
    assert not state.merge(trajectory(3))
    assert state.trajectory is not None and state.trajectory.events == 4


def test_what_is_not_taught_any_more_is_withdrawn_again_and_again() -> None:
    state = SessionState()
    state.merge(trajectory(3))
    assert [each.side for each in state.teach([taught("x"), taught("y")])] == ["success", "success"]
    state.merge(trajectory(4, feedback("success", 9.0)))
    for _ in range(2):
        again = {each.item_id: each for each in state.teach([taught("y"), taught("z")])}
        assert {id: each.side for id, each in again.items()} == {"x": "withdrawn", "y": "success", "z": "success"}
        assert again["x"].revision == trajectory(4, feedback("success", 9.0)).revision


@for_each("letter", "x", "語", "\x01", "😀")
def test_it_fits_the_store(letter: str) -> None:
    steps = tuple(Step(sequence=n, role="tool", tool="x", result=letter * 2000) for n in range(40))
    given = Feedback(session="s", label="success", time=1.0, by=letter * 256)
    state = SessionState()
    state.merge(trajectory(3, given, steps=steps, goal=letter * 2000))
    state.votes = tuple(
        Verdict(label="failure", probability=0.123456789, source="rules", version="v" * 40) for _ in range(3)
    )
    state.merge(opinion(3))
    state.teach([taught(f"item{n:028}") for n in range(2 * MAX_TAUGHT)])
    assert state.trajectory is not None
    state.trajectory = state.trajectory.digest()
    encoded = state.trajectory.to_json()
    assert len(encoded) <= DIGEST_BYTES
    assert len(state.to_json(encoded)) <= MILVUS_FIELD_BYTES
