from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from models.candidate import Candidate
from models.item_state import EXAMPLES, SAMPLED_SESSIONS, ItemState


def candidate(session: str, rank: int = 0, **changes: object) -> Candidate:
    base = Candidate(
        item_id="i",
        tenant="default",
        kind="strategy",
        side="success",
        session=session,
        agent=f"agent of {session[:1]}",
        seen=float(rank),
        revision=(1, 0.0),
        rank=(rank,),
        title="title",
        description="description",
        content=f"content of {session}",
        when="when",
        task="t",
        calls=(f"call of {session}",),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


# Either many sessions that are judged once (as nearly all are), or few that are judged again and again.
ONCE = st.builds(
    lambda session, rank: candidate(session, rank, side=("success", "failure")[len(session) % 2]),
    st.text("abc", min_size=1, max_size=4),
    st.integers(0, 3),
)
AGAIN = st.builds(
    lambda session, rank, side, revision: candidate(session, rank, side=side, revision=revision),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.sampled_from(["success", "failure"]),
    st.tuples(st.integers(1, 2), st.sampled_from([0.0, 5.0])),
)


def state(candidates: list[Candidate]) -> ItemState:
    merged = ItemState.empty()
    for each in candidates:
        merged.merge(each)
    return merged


def joined(*states: ItemState) -> ItemState:
    merged = ItemState.empty()
    for each in states:
        merged.merge(each)
    return merged


THREE = st.one_of(*(st.tuples(*[st.lists(each, max_size=12)] * 3) for each in (ONCE, AGAIN)))
MANY = st.one_of(st.lists(ONCE, max_size=12), st.lists(AGAIN, max_size=12))


@given(THREE)
def test_merging_is_a_join(three: tuple[list[Candidate], list[Candidate], list[Candidate]]) -> None:
    first, second, third = three
    a, b, c = map(state, three)
    assert joined(a, b) == joined(b, a)
    assert joined(joined(a, b), c) == joined(a, joined(b, c))
    assert joined(a, a) == a
    assert joined(a, b, c) == state([*third, *first, *second, *first])
    assert joined(a, b).to_json() == joined(b, a).to_json()


@given(MANY)
def test_it_says_whether_anything_changed(candidates: list[Candidate]) -> None:
    merged = ItemState.empty()
    for each in candidates:
        before = merged.to_json()
        assert merged.merge(each) == (merged.to_json() != before)
    assert not merged.merge(state(candidates))


@given(MANY)
def test_it_survives_json(candidates: list[Candidate]) -> None:
    merged = state(candidates)
    again = ItemState.from_json(merged.to_json())
    assert again == merged
    assert again.to_item() == merged.to_item()


def test_it_stays_small_and_counts_on() -> None:
    merged = state([candidate(f"{n}", rank=n % 7, kind="recovery") for n in range(1000)])
    assert len(merged.contributors) == SAMPLED_SESSIONS and len(merged.examples["success"]) == EXAMPLES
    assert len(merged.to_json()) < 10_000
    item = merged.to_item()
    assert item is not None and 600 < item.support < 1500


def test_the_best_example_is_shown_and_ties_go_to_the_first_session() -> None:
    merged = state(
        [candidate("b", 1), candidate("c", 1), candidate("d", 2), candidate("f", 0, side="failure", content="")]
    )
    item = merged.to_item()
    assert item is not None
    assert "call of b" in item.content
    assert "Only in a session that failed:\n- call of f" in item.content
    assert (item.support, item.sessions) == (4, ("b", "c", "d", "f"))


def test_a_strategy_with_one_side_is_no_item_yet() -> None:
    assert ItemState.empty().to_item() is None
    assert state([candidate("a"), candidate("b")]).to_item() is None
    assert state([candidate("a", side="failure")]).to_item() is None
    assert state([candidate("a", kind="recovery")]).to_item() is not None


def test_items_do_not_mix() -> None:
    with pytest.raises(ValueError, match="cannot be merged"):
        state([candidate("a")]).merge(candidate("b", item_id="other"))
    with pytest.raises(ValueError, match="cannot be merged"):
        state([candidate("a")]).merge(state([candidate("b", item_id="other")]))


def test_a_correction_replaces_what_the_session_contributed_before() -> None:
    lesson = candidate("a", kind="lesson", side="failure")
    taken_back = replace(lesson, side="success", revision=(1, 9.0))
    failed_after_all = replace(lesson, revision=(1, 10.0), content="failed after all")
    assert state([lesson]).to_item() is not None
    assert state([lesson, taken_back]).to_item() is None
    assert state([taken_back, lesson]) == state([lesson, taken_back, lesson])
    item = state([lesson, failed_after_all, taken_back]).to_item()
    assert item is not None and (item.content, item.support) == ("failed after all", 1)
    other = candidate("b", kind="lesson", side="failure")
    item = state([lesson, other, taken_back]).to_item()
    assert item is not None and (item.sessions, item.support) == (("b",), 1)
