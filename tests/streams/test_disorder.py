"""Sessions whose events overtake each other, come late, come again or come twice are judged once and whole."""

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for
from streams.stages.s1_sessions.partition import FIRST_CHECK_SECONDS, LONGEST_CHECK_SECONDS
from streams.stages.s1_sessions.stage import GAP_SECONDS
from tests.streams.log_pipeline import PARTITIONS, RIGHT, WRONG, LogPipeline, flat, held


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


async def test_what_never_comes_is_waited_for_only_so_long() -> None:
    pipeline = LogPipeline(batch_records=1)
    events = pipeline.story.session("torn", RIGHT, WRONG, RIGHT)
    await pipeline.send([*events[:2], *events[3:]])
    await read_only(pipeline)
    assert trajectories(pipeline) == []
    pipeline.clock.advance(GAP_SECONDS)
    others = [pipeline.story.session(f"other-{number}") for number in range(8)]
    await pipeline.send(flat(others))
    await read_only(pipeline)
    closed = {value["session"]: value.get("missing", 0) for value in trajectories(pipeline)}
    assert closed == {"torn": 1} | {f"other-{number}": 0 for number in range(8)}


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


async def test_a_session_that_begins_again_does_not_hold_the_commit_for_ever() -> None:
    pipeline, events = await closed_and_forgotten()
    before = await pipeline.knowledge()
    await pipeline.take(events[:3])
    assert held(pipeline) == 3, "nobody can tell yet that it is no new session"
    await wait(pipeline)
    assert held(pipeline) == 0
    assert await pipeline.knowledge() == before
    # The rest, with a gap, is no news either.
    await pipeline.send([events[4], events[3], events[5]])
    await wait(pipeline)
    assert held(pipeline) == 0
    assert await pipeline.knowledge() == before
    assert await pipeline.dead_letters() == []


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
