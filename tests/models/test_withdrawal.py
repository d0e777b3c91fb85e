"""An item from which sessions have withdrawn what they contributed, in any order."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from models.memory.candidate import Candidate
from models.memory.item_state import ItemState
from tests import candidates


def candidate(session: str, side: Any, events: int, kind: Any = "recovery") -> Candidate:
    return candidates.candidate(
        session,
        kind=kind,
        side=side,
        agent=f"agent of {session}",
        revision=(events, 0.0),
        title=f"title of {session}",
        content=f"content of {session}",
    )


def state(candidates: list[Candidate]) -> ItemState:
    made = ItemState()
    for each in candidates:
        made.merge(each)
    return made


# The sessions are as many as the kept examples: `models.memory.item_state` explains the gap that more sessions leave.
CONTRIBUTIONS = st.lists(
    st.builds(
        candidate,
        st.sampled_from(["a", "bb", "ccc"]),
        st.sampled_from(["success", "failure", "withdrawn"]),
        st.integers(1, 3),
        st.just("strategy"),
    ),
    max_size=10,
)


@given(CONTRIBUTIONS, CONTRIBUTIONS)
def test_withdrawals_merge_like_everything_else(first: list[Candidate], second: list[Candidate]) -> None:
    together = state([*first, *second])
    assert together == state([*second, *first, *second])
    assert together == ItemState.from_json(together.to_json())


def test_an_item_that_no_session_backs_any_more_is_gone() -> None:
    first, other = candidate("a", "success", 1), candidate("bb", "success", 1)
    gone = candidate("a", "withdrawn", 2)
    assert state([first]).to_item() is not None
    assert state([first, gone]).to_item() is None
    assert state([gone, first]).to_item() is None
    item = state([first, gone, other]).to_item()
    assert item is not None
    assert (item.title, item.support, item.agents, item.sessions) == ("title of bb", 1, 1, ("bb",))
    # It does not speak against the item either.
    assert item.against == 0


def test_what_is_taught_again_later_counts_again() -> None:
    item = state([candidate("a", "success", 3), candidate("a", "withdrawn", 2), candidate("a", "success", 1)]).to_item()
    assert item is not None and item.support == 1
    assert state([candidate("a", "success", 2), candidate("a", "withdrawn", 2)]).to_item() is None
