"""Buffered changes hold the commit back, are written in time, and lie within so many bytes."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.search import row_id
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import Pattern
from models.memory.bottom_k import SessionCounts
from models.memory.item_state import ItemState
from models.memory.pattern_state import Observation, PatternState, Subject
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import YIELD_EVERY, Effects, Record, TopicPartition, yielding
from streams.stage.merging_stage import Key, StateCache, WriteBuffer
from streams.stage.operators import Forget
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s4_items import ItemsStage, _Item
from tests.candidates import candidate
from tests.rows import for_each


def test_changes_are_due_after_a_while_or_where_nothing_comes_or_too_much_waits() -> None:
    clock, came = FakeClock(), [Record("t", 0, 3, None, b"", {})]
    changes: WriteBuffer[str] = WriteBuffer(clock, seconds=5.0, most=1)
    changes.waiting["t", "a"] = "changed"
    assert not changes.due(came) and changes.due([])
    changes.waiting["t", "b"] = "changed"
    assert changes.due(came)
    del changes.waiting["t", "b"]
    clock.advance(5.0)
    assert changes.due(came)


def test_nothing_counts_as_newer_than_another_store() -> None:
    here, changes = TopicPartition("t", 0), WriteBuffer[int](FakeClock(), seconds=5.0, most=10)
    keys = ("t", "written"), ("t", "begun"), ("t", "begun later"), ("t", "waiting")
    for offset, key in enumerate(keys):
        changes.waiting[key] = 1
        changes.due([Record(*here, offset, None, b"", {})])
        if offset < 3:
            changes.begin()
        if offset < 1:
            acknowledged = changes.write()
    changes.drop()
    assert not any(map(changes.newest, keys))
    assert changes.committable(here, 7) == 0
    acknowledged()
    assert changes.committable(here, 7) == 1, "what was begun is read again"


class SlowClock(FakeClock):
    """Four milliseconds go by between two looks at it."""

    def monotonic(self) -> float:
        self.advance(0.004)
        return super().monotonic()


OBSERVED = TopicPartition("fleetlore.default.observations", 0)


def seen(offset: int, *subjects: str, session: int = 1) -> Record:
    """A record in which a session has met some failures."""
    values = [
        Observation(Subject(each, "exact", "shell"), session, 1, 1, 1, 100.0, 100.0 + offset) for each in subjects
    ]
    return Record(*OBSERVED, offset, None, msgspec.json.encode(values), {})


def published(effects: Effects) -> list[str]:
    return [each.key for each in effects.outgoing]


async def test_a_new_failure_goes_before_all_that_is_to_be_written_and_no_batch_writes_it_all() -> None:
    clock = SlowClock()
    stage = PatternsStage(MemoryStore(), clock, Metrics("worker"))
    old = [f"old-{number}" for number in range(20)]
    assert published(await stage.process([seen(0, *old)])) == old
    clock.advance(5.0)
    first = await stage.process([seen(1, *old, "new", session=2)])
    assert published(first)[0] == "new" and len(published(first)) < 10
    assert not first.rows and stage.holds and stage.committable(OBSERVED, 2) == 0
    second = await stage.process([seen(2, "newer", session=3)])
    assert published(second)[0] == "newer"
    rows: list[str] = []
    offset = 3
    while not rows:
        effects = await stage.process([seen(offset)])
        assert len(published(effects)) < 10
        rows = [row["id"] for each in effects.rows.values() for row in each]
        offset += 1
    assert sorted(rows) == sorted(f"default/{each}" for each in (*old, "new"))
    assert stage.committable(OBSERVED, offset) == 0
    assert effects.acknowledged is not None
    effects.acknowledged()
    assert stage.committable(OBSERVED, offset) == 2  # what came meanwhile waits for the next write


async def test_what_changes_with_every_batch_is_written_in_time() -> None:
    """A write that was begun and is not done when the next is due is done then, or it would only grow."""
    clock = SlowClock()
    stage = PatternsStage(MemoryStore(), clock, Metrics("worker"))
    old = [f"old-{number}" for number in range(40)]
    await stage.process([seen(0, *old, session=99)])
    all_of_them = await stage.process([])
    assert sum(map(len, all_of_them.rows.values())) == 40, "where nothing comes all is written at once"
    assert all_of_them.acknowledged is not None
    all_of_them.acknowledged()
    written = 0
    for offset in range(60):
        effects = await stage.process([seen(offset, *old, session=offset)])
        if effects.acknowledged is not None:
            written += 1
            effects.acknowledged()
            assert offset - stage.committable(OBSERVED, offset + 1) <= 12
        clock.advance(1.0)
    assert written >= 5


class Asked(MemoryStore):
    """A store that says what it was asked for, and does not list its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        self.asked.append(sorted(ids))
        return await super().get(collection, ids, *fields)

    def rows(self, *_: object, **__: str) -> Any:
        raise AssertionError("a start would take as long as the store is large")


async def test_the_first_hint_after_a_restart_asks_the_store_once_for_what_it_needs() -> None:
    store, known = Asked(), []
    for number in range(3_000):
        state = PatternState(Subject(f"old-{number}", "exact", "shell"))
        state.add(0, SessionCounts(1, 1, 1), 100.0, 100.0)
        row = {"id": row_id("default", state.subject.id), "tenant": "default", "text": "", "state": state.state_json()}
        known.append(row | {"body": state.to_pattern("default").to_json().decode()})
    await store.upsert("patterns", known)
    stage = PatternsStage(store, FakeClock(), Metrics("worker"))

    def sessions(effects: Effects) -> dict[str, int]:
        return {each.key: Pattern.from_json(each.value).sessions for each in effects.outgoing if each.value}

    assert sessions(await stage.process([seen(0, "old-7", "new")]))["new"] == 1
    assert store.asked == [[row_id("default", "new"), row_id("default", "old-7")]]
    await stage.process([seen(1, "old-7", "new", session=2)])
    assert len(store.asked) == 1, "states in memory are not asked for again"
    assert sessions(await stage.process([])) == {"old-7": 3, "new": 2}


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 50))), st.integers(0, 100))
def test_what_was_used_last_stays_within_the_bound(puts: list[tuple[str, int]], most: int) -> None:
    store = Asked()
    cache: StateCache[int] = StateCache(store, "items", lambda row: 0, lambda value: value, most)
    for key, value in puts:
        cache.remember("t", key, value)
    newest = dict(puts)
    order = list(dict.fromkeys(key for key, _ in reversed(puts)))  # the one that was used last comes first
    kept = 0
    while kept < len(order) and sum(newest[key] for key in order[: kept + 1]) <= most:
        kept += 1

    async def load() -> dict[tuple[str, str], int]:
        await cache.load([])  # finds the collection
        for key, value in puts:
            cache.remember("t", key, value)
        return await cache.load([("t", key) for key in order])

    # What does not fit is let go of from the one that was used longest ago, and asked of the store.
    assert asyncio.run(load()) == {("t", key): newest[key] for key in order[:kept]}
    assert set(chain(*store.asked)) == {f"t/{key}" for key in order[kept:]}


def taken_up(make: Callable[[int], object], count: int) -> float:
    gc.collect()
    tracemalloc.start()
    made = [make(number) for number in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made
    return size / count


def pattern(number: int, sessions: int, level: str = "tool") -> PatternState:
    state = PatternState(Subject(f"{number:032x}", level, f"tool{number}"))
    for session in range(sessions):
        seen = SessionCounts(10**15 + session % 40, 300 + session, 300)
        time = 1.7e9 + 977.0 * session
        state.add(10**15 + number * 1000 + session, seen, time, time)
    return state


@pytest.mark.long
@for_each("sessions", 1, 30, 600)
def test_a_pattern_takes_up_no_more_than_is_reckoned(sessions: int) -> None:
    stage = PatternsStage(MemoryStore(), FakeClock(), Metrics("worker"))
    reckoned = stage.weigh(pattern(0, sessions))
    assert 0.2 * reckoned < taken_up(lambda number: pattern(number, sessions), 10) < reckoned


def item(number: int, sessions: int) -> _Item:
    state = ItemState()
    for session in range(sessions):
        state.merge(candidate(f"s{number}-{session}", agent=f"a{session}", content="x" * 900, description="y" * 300))
    return _Item(state)


@pytest.mark.long
@for_each("sessions", 1, 30, 100)
def test_an_item_takes_up_no_more_than_is_reckoned(sessions: int) -> None:
    stage = ItemsStage(MemoryStore(), FakeClock(), Metrics("worker"))
    reckoned = stage.weigh(item(0, sessions))
    assert 0.1 * reckoned < taken_up(lambda number: item(number, sessions), 10) < reckoned


async def test_all_come_in_order_and_others_get_a_turn_now_and_then() -> None:
    turns: list[int] = []
    seen: list[int] = []

    async def others() -> None:
        while len(seen) < 3 * YIELD_EVERY:
            turns.append(len(seen))
            await asyncio.sleep(0)

    async def work() -> None:
        async for value in yielding(range(3 * YIELD_EVERY)):
            seen.append(value)

    await asyncio.gather(work(), others())
    assert seen == list(range(3 * YIELD_EVERY))
    assert turns == [YIELD_EVERY, 2 * YIELD_EVERY]


class OddStage(PatternsStage):
    """Makes no row of one state, whose record passed every check."""

    def publish(self, key: Key, state: PatternState, effects: Effects) -> bytes | None:
        super().publish(key, state, effects)
        if key[1] == "odd":
            raise OverflowError("int too large to convert to float")
        return b"{}"


@for_each("seconds", 0.0, 6.0)
async def test_a_state_of_which_no_row_can_be_made_is_a_dead_letter_and_the_others_are_written(seconds: float) -> None:
    clock = FakeClock()
    stage = OddStage(MemoryStore(), clock, Metrics("worker"))
    effects = [await stage.process([seen(0, "fine", "odd", "good")])]
    clock.advance(seconds)
    effects += [await stage.process([seen(1, "fine", session=2)]), await stage.process([])]
    letters = [letter for each in effects for letter in each.dead_letters]
    assert {(each.reason, each.record.offset, b"odd" in each.value) for each in letters} == {("unreadable", 0, True)}
    assert {key for each in effects for key in published(each)} == {"fine", "good"}
    rows = [row["id"] for each in effects for found in each.rows.values() for row in found]
    assert set(rows) == {row_id("default", "fine"), row_id("default", "good")}
    for each in effects:
        if each.acknowledged is not None:
            each.acknowledged()
    assert not stage.holds and stage.committable(OBSERVED, 2) == 2


async def test_a_row_that_cannot_be_read_refuses_its_contributions_and_stays() -> None:
    class Damaged(MemoryStore):
        async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
            return {id: {"body": "", "state": "{"} for id in ids if "bad" in id}

    stage = ItemsStage(Damaged(), FakeClock(), Metrics("items"))
    values = [*(candidate(item_id=id).to_json() for id in ("bad", "good")), Forget("bad", (1,)).to_json()]
    topic = "fleetlore.t.candidates"
    effects = await stage.process([Record(topic, 0, at, None, value, {}) for at, value in enumerate(values)])
    assert [each.reason for each in effects.dead_letters] == ["stored_state"] * 2
    assert {each.record.offset for each in effects.dead_letters} <= {0, 2}
    written = [row["id"] for batch in (effects, await stage.process([])) for row in batch.rows.get("items", [])]
    assert written == [row_id("t", "good")]
