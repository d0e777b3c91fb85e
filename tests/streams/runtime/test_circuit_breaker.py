"""The breaker trips on a stream that is refused wholesale, and on nothing less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import BreakerTripped
from streams.runtime.circuit_breaker import SUSPECT_RECORDS, WINDOW_RUNS, Breaker
from streams.stage.base import TopicPartition

RUN = 4
WINDOW = WINDOW_RUNS * RUN
EVENTS = "fleetlore.acme.events"


def tripped_at(outcomes: list[bool], breaker: Breaker | None = None) -> int | None:
    """Feed records, True for a good one; the number of the one that trips it."""
    breaker = breaker or Breaker(ratio=0.5, run_records=RUN)
    for number, good in enumerate(outcomes):
        if good:
            breaker.good(EVENTS)
        else:
            try:
                breaker.lost(EVENTS, "not_json")
            except BreakerTripped:
                return number
    return None


def test_a_run_at_the_start_trips_it_at_the_limit() -> None:
    assert tripped_at([False] * RUN) == RUN - 1
    assert tripped_at([False] * (RUN - 1)) is None


def test_a_burst_in_a_healthy_stream_does_not_trip_it_until_most_of_the_window_is_lost() -> None:
    healthy = [True] * WINDOW
    assert tripped_at(healthy + [False] * (WINDOW // 2)) is None
    assert tripped_at(healthy + [False] * (WINDOW // 2 + 1)) == WINDOW + WINDOW // 2


def test_mostly_garbage_does_not_trip_it_while_good_records_come_between() -> None:
    assert tripped_at(([False] * (RUN - 1) + [True]) * 1000) is None


@given(st.lists(st.booleans(), max_size=200), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
def test_it_trips_where_the_definition_says(outcomes: list[bool], ratio: float) -> None:
    expected = None
    for number in range(len(outcomes)):
        run = outcomes[max(0, number + 1 - RUN) : number + 1]
        window = outcomes[max(0, number + 1 - WINDOW) : number + 1]
        if len(run) == RUN and not any(run) and window.count(False) > ratio * len(window):
            expected = number
            break
    assert tripped_at(outcomes, Breaker(ratio, RUN)) == expected


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, RUN - 1)), max_size=30))
def test_good_records_count_the_same_one_by_one_and_at_once(stretches: list[tuple[int, int]]) -> None:
    at_once, one_by_one = Breaker(0.5, RUN), Breaker(0.5, RUN)
    for good, bad in stretches:
        at_once.good(EVENTS, good)
        for _ in range(good):
            one_by_one.good(EVENTS)
        for _ in range(bad):
            at_once.lost(EVENTS, "empty")
            one_by_one.lost(EVENTS, "empty")
    tail = [False] * WINDOW
    assert tripped_at(tail, at_once) == tripped_at(tail, one_by_one)


def test_streams_do_not_know_of_each_other() -> None:
    breaker = Breaker(0.5, RUN)
    for number in range(RUN - 1):
        breaker.lost("fleetlore.a.events", "not_json", TopicPartition("fleetlore.a.events", 1), 5 + number)
        breaker.lost("fleetlore.b.events", "empty")
        breaker.good("fleetlore.c.events")
    assert (breaker.run("fleetlore.a.events"), breaker.run("fleetlore.c.events")) == (RUN - 1, 0)
    breaker.good("fleetlore.a.events")
    assert breaker.run("fleetlore.a.events") == 0
    with pytest.raises(BreakerTripped):
        breaker.lost("fleetlore.b.events", "empty")


def test_a_run_is_suspect_when_it_is_long_or_nothing_good_was_seen() -> None:
    breaker, tp = Breaker(0.5, 1000), TopicPartition(EVENTS, 1)
    assert breaker.suspect(EVENTS) == {}
    breaker.lost(EVENTS, "empty", tp, 5)
    assert breaker.suspect(EVENTS) == {tp: 5}
    breaker.good(EVENTS)
    assert breaker.suspect(EVENTS) == {}
    for offset in range(7, 7 + SUSPECT_RECORDS - 1):
        breaker.lost(EVENTS, "empty", tp, offset)
    assert breaker.suspect(EVENTS) == {}
    breaker.lost(EVENTS, "empty", TopicPartition(EVENTS, 0), 3)
    assert breaker.suspect(EVENTS) == {tp: 7, TopicPartition(EVENTS, 0): 3}
    breaker.good(EVENTS)
    assert breaker.suspect(EVENTS) == {}


def test_the_message_names_the_stream_the_reasons_the_place_and_the_remedy() -> None:
    breaker = Breaker(0.5, RUN)
    breaker.good(EVENTS, 2)
    for number in range(RUN - 1):
        breaker.lost(EVENTS, "unknown_version", TopicPartition(EVENTS, number % 2), 40 + number)
    with pytest.raises(BreakerTripped) as raised:
        breaker.lost(EVENTS, "missing_field", TopicPartition(EVENTS, 0), 50)
    said = str(raised.value)
    assert said.startswith(f"{EVENTS}: the last {RUN} records were refused")
    for part in ("unknown_version 3, missing_field 1", "0 from 40, 1 from 41", f"{RUN} of the last {RUN + 2}"):
        assert part in said
    assert "dead-letters list" in said and f"FLEETLORE_BREAKER_RUN_RECORDS (now {RUN})" in said


def test_after_a_rebalance_it_counts_anew() -> None:
    breaker = Breaker(0.5, RUN)
    for _ in range(RUN - 1):
        breaker.lost(EVENTS, "empty")
    breaker.forget()
    assert tripped_at([False] * (RUN - 1), breaker) is None
