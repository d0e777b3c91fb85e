"""What is used last is kept within so many bytes, and what is reckoned of a state is no less than what it takes up."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.testing import FakeClock
from models.judge.record import Case, JudgeRecord
from models.memory.bottom_k import SessionCounts
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState, Subject
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.bounded_cache import BoundedCache
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments.judge_records import _weigh
from streams.stages.s4_items import ItemsStage, _Item
from tests.candidates import candidate


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 50))), st.integers(0, 100))
def test_what_was_used_last_stays_within_the_bound(puts: list[tuple[str, int]], most: int) -> None:
    cache: BoundedCache[str, int] = BoundedCache(lambda value: value, most)
    for key, value in puts:
        cache.put(key, value)
        assert cache.get(key) == value
    newest = dict(puts)
    order = list(dict.fromkeys(key for key, _ in reversed(puts)))[::-1]
    assert cache.items() == [(key, newest[key]) for key in order]
    cache.trim()
    kept = [value for _, value in cache.items()]
    assert cache.bytes == sum(kept) <= most
    assert kept == [newest[key] for key in order][len(order) - len(kept) :]
    if len(kept) < len(order):
        assert cache.bytes + newest[order[-len(kept) - 1]] > most
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def taken_up(make: Callable[[int], object], count: int) -> float:
    gc.collect()
    tracemalloc.start()
    made = [make(number) for number in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made
    return size / count


def pattern(number: int, sessions: int, level: str = "tool") -> PatternState:
    state = PatternState(Subject(f"{number:032x}", level, f"tool{number}"))  # type: ignore[arg-type]
    for session in range(sessions):
        seen = SessionCounts(10**15 + session % 40, 300 + session, 300)
        time = 1.7e9 + 977.0 * session
        state.add(10**15 + number * 1000 + session, seen, time, time, f"agent{session}")
    return state


@pytest.mark.parametrize("sessions", [1, 30, 600])
def test_a_pattern_takes_up_no_more_than_is_reckoned(sessions: int) -> None:
    stage = PatternsStage(MemoryStore(), FakeClock())
    reckoned = stage.weigh(pattern(0, sessions))
    assert 0.2 * reckoned < taken_up(lambda number: pattern(number, sessions), 10) < reckoned


def item(number: int, sessions: int) -> _Item:
    state = ItemState.empty()
    for session in range(sessions):
        state.merge(candidate(f"s{number}-{session}", agent=f"a{session}", content="x" * 900, description="y" * 300))
    return _Item(state)


@pytest.mark.parametrize("sessions", [1, 30, 100])
def test_an_item_takes_up_no_more_than_is_reckoned(sessions: int) -> None:
    stage = ItemsStage(MemoryStore(), FakeClock(), Metrics("worker"))
    reckoned = stage.weigh(item(0, sessions))
    assert 0.1 * reckoned < taken_up(lambda number: item(number, sessions), 10) < reckoned


@pytest.mark.parametrize("cases", [0, 200])
def test_a_judges_record_takes_up_no_more_than_is_reckoned(cases: int) -> None:
    def record(number: int) -> JudgeRecord:
        made = JudgeRecord("rules", "v1", f"family{number}")
        for case in range(cases):
            said = Case((2**50 + case, 1.7e9 + case), "success", "failure", 10**15 + case)
            made.add(f"session-{number}-{case}", said)
        return made

    reckoned = _weigh(record(0))
    assert 0.2 * reckoned < taken_up(record, 10) < reckoned
