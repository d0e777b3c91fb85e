"""Events that overtake each other, come late, come again or come twice: a session is judged once and whole.

A late event has the same effect whether a worker remembers the session or reads it; no worker's clock matters.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetlore.errors import StoreUnavailable
from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for
from streams.stages.s1_sessions import stage as s1
from streams.stages.s1_sessions.partition import FIRST_CHECK_SECONDS, LONGEST_CHECK_SECONDS, TAIL_SECONDS
from streams.stages.s1_sessions.stage import GAP_SECONDS
from tests.rows import for_each
from tests.streams.log_pipeline import BASE_TIME, OTHER, PARTITIONS, RIGHT, WRONG, LogPipeline, flat, held


def trajectories(pipeline: LogPipeline) -> list[dict[str, Any]]:
    """Those of sessions that were closed."""
    return [value for value in pipeline.published("trajectories") if not value.get("is_open")]


async def read_only(pipeline: LogPipeline) -> None:
    """All that was sent, without the empty batch that says that nothing else comes."""
    while any([await pipeline.batch(pipeline.stages[0], partition) for partition in (0, 1)]):
        pass


@given(order=st.permutations(range(8)), batch_records=st.integers(1, 8), again=st.integers(0, 7))
async def test_events_in_any_order_and_again_are_one_session(order: list[int], batch_records: int, again: int) -> None:
    """Without the call in between, three equal calls would be a loop."""
    expected = LogPipeline()
    events = expected.story.session("s", RIGHT, RIGHT, WRONG, RIGHT, RIGHT, RIGHT)
    await expected.take(events)
    pipeline = LogPipeline(batch_records=batch_records)
    await pipeline.take([events[place] for place in [*order, order[again]]])
    assert await pipeline.knowledge() == await expected.knowledge()
    assert await pipeline.dead_letters() == []
    assert [value["events"] for value in trajectories(pipeline)] == [8]
    loops = [row["calls"] for row in await pipeline.bodies("patterns") if row["template"].startswith("the same call")]
    assert loops == [2] * len(loops) != []


async def test_the_commit_waits_with_the_session() -> None:
    pipeline = LogPipeline(batch_records=1)
    events = pipeline.story.session("torn", RIGHT, WRONG, RIGHT)
    await pipeline.send([*events[:2], *events[3:]])
    await read_only(pipeline)
    pipeline.commit()
    assert sorted(pipeline.committed("events").values()) == [(0, 0), (0, 4)]
    pipeline.crash()
    await pipeline.take([events[2]])
    assert [(value["events"], value.get("missing", 0)) for value in trajectories(pipeline)] == [(5, 0)]
    assert sorted(pipeline.committed("events").values()) == [(0, 0), (5, 5)]


async def test_a_session_that_paused_is_handed_on_once_a_batch() -> None:
    pipeline = LogPipeline(batch_records=16, silent_seconds=60.0)
    paused = pipeline.story.session("s", *[RIGHT] * 78)
    other = next(f"o{n}" for n in range(99) if partition_for(f"o{n}", PARTITIONS) == partition_for("s", PARTITIONS))
    meanwhile = [event._replace(time=event.time + 1000) for event in pipeline.story.session(other, RIGHT)]
    later = [event._replace(time=event.time + 2000) for event in paused[8:]]
    await pipeline.take([*paused[:8], *meanwhile])
    before = len(pipeline.published("trajectories"))
    await pipeline.take(later)
    assert len(pipeline.published("trajectories")) - before <= 1 + len(later) // 16
    assert ("s", "success", 80) in (await pipeline.knowledge()).judgments


async def wait(pipeline: LogPipeline, seconds: float = FIRST_CHECK_SECONDS) -> None:
    pipeline.clock.advance(seconds)
    await pipeline.drain()


async def closed_and_forgotten() -> tuple[LogPipeline, list[Event]]:
    """A session that was judged and committed, and a worker that was started after that."""
    pipeline = LogPipeline(batch_records=1)
    events = pipeline.story.session("s", WRONG, RIGHT, WRONG, RIGHT)
    await pipeline.take(events)
    assert held(pipeline) == 0
    pipeline.crash()
    return pipeline, events


async def test_a_correction_that_came_with_it_counts() -> None:
    pipeline, events = await closed_and_forgotten()
    await pipeline.take([events[0], pipeline.story.feedback("s", "failure"), events[2]])
    await wait(pipeline)
    [judgment] = await pipeline.bodies("judgments")
    assert (judgment["label"], judgment["source"], judgment["events"]) == ("failure", "feedback", 6)
    assert await pipeline.dead_letters() == []


async def test_a_session_that_is_still_open_holds_the_commit_however_often_the_store_is_asked() -> None:
    pipeline = LogPipeline(batch_records=1)
    events = pipeline.story.session("s", WRONG, RIGHT)
    await pipeline.send(events[:2])
    for _ in range(8):
        await wait(pipeline, LONGEST_CHECK_SECONDS)
    assert held(pipeline) == 2
    pipeline.crash()
    await pipeline.take(events[2:])
    assert [row["events"] for row in await pipeline.bodies("judgments")] == [4]
    assert held(pipeline) == 0


async def test_a_session_that_was_silent_and_goes_on_holds_the_commit_as_soon_as_it_tells_news() -> None:
    pipeline = LogPipeline(batch_records=1, silent_seconds=60.0)
    events = pipeline.story.session("s", WRONG, RIGHT, RIGHT)
    await pipeline.send(events[:2])
    later = [pipeline.story.session(f"later-{number}", start=1_760_000_100.0) for number in range(8)]
    await pipeline.take(flat(later))
    assert held(pipeline) == 0
    pipeline.crash()
    await pipeline.send(events[:3])
    await wait(pipeline)
    assert held(pipeline) == 3, "its third event is behind no judgment"
    await pipeline.take(events[3:])
    assert {row["session"]: row["events"] for row in await pipeline.bodies("judgments")}["s"] == 5
    assert held(pipeline) == 0


@given(
    upto=st.integers(1, 30),
    repeats=st.lists(st.tuples(st.booleans(), st.integers(0, 29), st.integers(1, 8)), min_size=1, max_size=5),
    batch_records=st.integers(1, 5),
)
@example(upto=30, repeats=[(True, 0, 3), (False, 4, 1), (False, 3, 1)], batch_records=1)  # it begins again, with a gap
@example(upto=14, repeats=[(True, 0, 3)], batch_records=1)  # its end is read again before its beginning comes again
@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
async def test_the_end_is_the_same_with_and_without_what_is_sent_again(
    upto: int, repeats: list[tuple[bool, int, int]], batch_records: int
) -> None:
    """Anything that came before, in any order of stretches, by workers that die between; and then the rest."""
    undisturbed = LogPipeline()
    events = undisturbed.story.interleaved(undisturbed.story.fleet(), seed=1)
    assert len(events) == 30
    await undisturbed.take(events)
    pipeline = LogPipeline(batch_records=batch_records)
    await pipeline.send(events[:upto])
    for dies, start, count in repeats:
        await pipeline.drain()
        if dies:
            pipeline.crash()
        await pipeline.send(events[:upto][start % upto :][:count])
    await pipeline.take(events[upto:])
    await wait(pipeline)
    assert await pipeline.knowledge() == await undisturbed.knowledge()
    assert held(pipeline) == 0
    assert await pipeline.dead_letters() == []


SILENT = 60.0
HOUR = 3_600.0


async def reasons(pipeline: LogPipeline) -> list[str]:
    return sorted(headers["dlq.reason"] for headers, _ in await pipeline.dead_letters())


def meanwhile(pipeline: LogPipeline, session: str, time: float) -> list[Event]:
    """A session on the same partition, by which event time goes on."""
    place = partition_for(session, PARTITIONS)
    name = next(f"o{n}-{time}" for n in range(99) if partition_for(f"o{n}-{time}", PARTITIONS) == place)
    return pipeline.story.session(name, RIGHT, agent="clock", start=time)


def after_its_end(pipeline: LogPipeline, session: str = "s") -> tuple[list[Event], list[Event]]:
    """A session that ended after four events, and three failed calls that come after that."""
    whole = pipeline.story.session(session, RIGHT, RIGHT)
    late = pipeline.story.session(session, *[OTHER] * 6)[4:7]
    return whole, late


@for_each("restarted", False, True)
async def test_events_after_the_end_are_dead_letters(restarted: bool) -> None:
    expected = LogPipeline()
    whole, late = after_its_end(expected)
    await expected.take(whole)
    overtaken = LogPipeline()
    await overtaken.take([*whole[:3], *late, *whole[3:]])
    pipeline = LogPipeline()
    await pipeline.take(whole)
    if restarted:
        pipeline.crash()
    await pipeline.take(late)
    assert await reasons(pipeline) == ["after_end"] * 3
    assert held(pipeline) == 0
    assert await pipeline.knowledge() == await expected.knowledge()
    assert (await overtaken.knowledge()).judgments == [("s", "success", 4)]


async def test_a_tail_whose_first_event_never_comes_becomes_dead_letters() -> None:
    pipeline = LogPipeline(silent_seconds=SILENT)
    await pipeline.take(pipeline.story.session("s", WRONG, RIGHT)[1:])
    assert held(pipeline) == 3, "it may come yet"
    await pipeline.take(meanwhile(pipeline, "s", BASE_TIME + 1000))
    assert held(pipeline) == 6, "its judgment may be on its way"
    pipeline.clock.advance(TAIL_SECONDS)
    await pipeline.drain()
    assert await reasons(pipeline) == ["missing_start"] * 3
    assert held(pipeline) == 0


async def away(*_: object) -> None:
    raise StoreUnavailable("away")


async def test_a_store_that_is_away_loses_no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = LogPipeline(silent_seconds=SILENT)
    whole, late = after_its_end(pipeline)
    await pipeline.take(whole)
    pipeline.crash()

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.store, "get", away)
        await pipeline.send([*late, *meanwhile(pipeline, "s", BASE_TIME + 1000)[:1]])
        while await pipeline.batch(pipeline.stages[0], partition_for("s", PARTITIONS)):
            pass
        pipeline.commit()
    assert await reasons(pipeline) == []
    assert held(pipeline) == 4
    pipeline.clock.advance(FIRST_CHECK_SECONDS)
    await pipeline.drain()
    assert await reasons(pipeline) == ["after_end"] * 3


async def test_a_session_that_misses_an_event_is_closed_in_time_though_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = LogPipeline()
    events = pipeline.story.session("torn", RIGHT, WRONG, RIGHT)
    monkeypatch.setattr(pipeline.store, "get", away)
    await pipeline.send([*events[:2], *events[3:]])
    await read_only(pipeline)
    assert trajectories(pipeline) == []
    pipeline.clock.advance(GAP_SECONDS)
    await pipeline.send(pipeline.story.session("other"))
    await read_only(pipeline)
    closed = {value["session"]: value.get("missing", 0) for value in trajectories(pipeline)}
    assert closed == {"torn": 1, "other": 0}


@for_each("restarted", False, True)
async def test_a_long_session_that_goes_on_keeps_the_words_of_its_failures(restarted: bool) -> None:
    pipeline = LogPipeline(silent_seconds=SILENT, batch_records=64)
    events = pipeline.story.session("s", *[RIGHT] * 60, OTHER, *[RIGHT] * 200)
    await pipeline.take([*events[:-1], *meanwhile(pipeline, "s", BASE_TIME + 1000)])
    if restarted:
        pipeline.crash()
    await pipeline.take(events[-1:])
    failures = [each for each in await pipeline.bodies("patterns") if each.get("error_class") == "no_such_column"]
    assert [each["template"] for each in failures if each["level"] != "family"] == ["no such column: 'nam'"] * 2


@for_each("restarted", False, True)
async def test_a_session_id_that_is_used_again_loses_nothing_silently(restarted: bool) -> None:
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("s", WRONG, RIGHT))
    before = await pipeline.knowledge()
    if restarted:
        pipeline.crash()
    await pipeline.take(pipeline.story.session("s", OTHER, RIGHT, RIGHT, start=BASE_TIME + 50))
    assert (await pipeline.knowledge()).judgments == before.judgments
    assert set(await reasons(pipeline)) == ({"reused_session"} if restarted else {"reused_session", "after_end"})


def sessions_of(pipeline: LogPipeline) -> list[list[Event]]:
    """On two partitions: events after an end, a long pause, and others by which event time goes on."""
    story = pipeline.story
    paused = story.session("paused", WRONG, RIGHT, WRONG, WRONG, RIGHT, agent="p")
    return [
        [*(whole := after_its_end(pipeline, "over"))[0], *whole[1]],
        [*paused[:3], *[event._replace(time=event.time + 500) for event in paused[3:]]],
        *[story.session(f"clock-{n}", RIGHT, agent=f"clock-{n}", start=BASE_TIME + 200.0 * n) for n in range(4)],
    ]


async def everything(pipeline: LogPipeline, events: Sequence[Event], stops: Sequence[int]) -> None:
    start = 0
    for stop in [*stops, len(events)]:
        await pipeline.take(events[start:stop])
        if stop != len(events):
            pipeline.crash()
        start = max(start, stop)
    for _ in range(3):
        pipeline.clock.advance(LONGEST_CHECK_SECONDS)
        await pipeline.drain()


@given(
    seed=st.integers(0, 10_000),
    stops=st.lists(st.integers(0, 40), max_size=4).map(sorted),
    batch_records=st.integers(1, 9),
    most_bytes=st.sampled_from([s1.MAX_BYTES, 20_000, 1]),
)
@example(seed=0, stops=[10, 20, 30], batch_records=1, most_bytes=1)
@example(seed=836, stops=[14], batch_records=2, most_bytes=1)  # a failed call is sent again after the pause
@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
async def test_the_state_follows_from_the_set_of_events(
    seed: int, stops: list[int], batch_records: int, most_bytes: int
) -> None:
    """Sessions take turns in any order, workers die between, and memory is as small as one session."""
    calm = LogPipeline(silent_seconds=SILENT)
    await everything(calm, flat(sessions_of(calm)), [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s1, "MAX_BYTES", most_bytes)
        pipeline = LogPipeline(silent_seconds=SILENT, batch_records=batch_records)
        events = pipeline.story.interleaved(sessions_of(pipeline), seed)
        await everything(pipeline, events, [stop for stop in stops if stop < len(events)])
    assert await pipeline.knowledge() == await calm.knowledge()
    assert held(pipeline) == 0


@for_each("off", -3 * HOUR, -600.0, 0.0, 3 * HOUR)
async def test_a_workers_clock_changes_nothing(off: float) -> None:
    pipeline = LogPipeline()
    now = pipeline.broker_clock.now()
    events = [event._replace(time=now + n) for n, event in enumerate(pipeline.story.fleet()[0])]
    pipeline.clock.set(now + off)
    await pipeline.take(events)
    assert await pipeline.dead_letters() == []
    assert [session for session, *_ in (await pipeline.knowledge()).judgments] == ["good-1"]
