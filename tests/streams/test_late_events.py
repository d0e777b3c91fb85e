"""A late event has the same effect whether a worker remembers the session or reads it; no worker's clock matters."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetlore.errors import StoreUnavailable
from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for
from streams.stages.s1_sessions import stage as s1
from streams.stages.s1_sessions.partition import FIRST_CHECK_SECONDS, LONGEST_CHECK_SECONDS
from streams.stages.s1_sessions.stage import TAIL_SECONDS
from tests.rows import for_each
from tests.streams.log_pipeline import BASE_TIME, OTHER, PARTITIONS, RIGHT, WRONG, LogPipeline, flat, held

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


async def test_a_store_that_is_away_loses_no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = LogPipeline(silent_seconds=SILENT)
    whole, late = after_its_end(pipeline)
    await pipeline.take(whole)
    pipeline.crash()

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

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
