"""A series of periods: a join-semilattice that keeps its newest periods and nothing of when it was told."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from models.memory.bottom_k import SessionCounts
from models.memory.pattern_state import Timeline

HOUR = 3600.0

seen = st.builds(SessionCounts, st.integers(0, 5), st.integers(1, 20), st.integers(0, 20), st.integers(0, 2))
entries = st.lists(st.tuples(st.integers(1, 40), seen, st.floats(0, 40 * HOUR)), max_size=40)


def timeline(rows: list[tuple[int, SessionCounts, float]]) -> Timeline:
    made = Timeline(HOUR, 5, 20)
    for row in rows:
        made.add(*row)
    return made


@given(entries, entries)
def test_merging_commutes(a: list[tuple[int, SessionCounts, float]], b: list[tuple[int, SessionCounts, float]]) -> None:
    one, other = timeline(a), timeline(b)
    one.merge(timeline(b))
    other.merge(timeline(a))
    assert one.to_rows() == other.to_rows() == timeline(b + a).to_rows()


@given(entries, st.randoms(use_true_random=False))
def test_order_and_repetition_leave_no_trace(rows: list[tuple[int, SessionCounts, float]], rng: object) -> None:
    again = timeline(rows + rows[::-1])
    assert again.to_rows() == timeline(rows).to_rows()
    assert not again.merge(timeline(rows))


@given(entries)
def test_a_timeline_reads_back_from_its_rows(rows: list[tuple[int, SessionCounts, float]]) -> None:
    made, restored = timeline(rows), Timeline(HOUR, 5, 20)
    restored.restore(made.to_rows(), made.k)
    assert restored == made
    assert len(made.samples) <= 5 and sum(len(sample.kept) for sample in made.samples.values()) <= 20
    assert deepcopy(made).periods == made.periods


def test_only_the_newest_periods_are_kept() -> None:
    made = Timeline(HOUR, 2, 8)
    for hour, session in ((7, 1), (5, 2), (9, 3), (6, 4), (9, 5)):
        made.add(session, SessionCounts(session, 2, 1), hour * HOUR + 10)
    assert made.periods == ((9, 4, 2), (7, 2, 1))
    assert sorted(each.agent for each in made.seen()) == [1, 3, 5]
    assert sorted(each.agent for each in made.seen(8 * HOUR)) == [3, 5]


def test_periods_share_the_room_evenly_and_a_young_timeline_counts_exactly() -> None:
    made = Timeline(HOUR, 4, 40)
    for session in range(39):
        made.add(session, SessionCounts(session, 2, 1), HOUR)
    assert made.periods == ((1, 78, 39),) and not made.is_estimated
    made.add(100, SessionCounts(100, 2, 1), 2 * HOUR)
    assert [len(made.samples[hour].kept) for hour in (1, 2)] == [20, 1]
    assert made.is_estimated


def test_what_is_gone_makes_no_estimate_exact() -> None:
    made = Timeline(HOUR, 4, 40)
    for session in range(39):
        made.add(session, SessionCounts(session, 2, 1), HOUR)
    made.add(100, SessionCounts(100, 2, 1), 2 * HOUR)
    assert made.discard({100}) and list(made.samples) == [1]
    restored = Timeline(HOUR, 4, 40)
    restored.restore(made.to_rows(), made.k)
    for each in (made, restored):
        assert each.is_estimated
        each.add(39, SessionCounts(39, 2, 1), HOUR)
        assert len(each.samples[1].kept) == 20
