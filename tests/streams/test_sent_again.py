"""Events that are redelivered after their session was closed neither hold the commit back nor change anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetlore.errors import StoreUnavailable
from fleetlore.wire.events import Event
from streams.stages.s1_sessions.partition import FIRST_CHECK_SECONDS, LONGEST_CHECK_SECONDS
from tests.streams.log_pipeline import LogPipeline

MakePipeline = Callable[..., LogPipeline]

RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")


def held(pipeline: LogPipeline) -> int:
    """Records of `events` that are not committed."""
    return sum(end - committed for committed, end in pipeline.committed("events").values())


async def wait(pipeline: LogPipeline, seconds: float = FIRST_CHECK_SECONDS) -> None:
    pipeline.clock.advance(seconds)
    await pipeline.drain()


async def closed_and_forgotten(make: MakePipeline) -> tuple[LogPipeline, list[Event]]:
    """A session that was judged and committed, and a worker that was started after that."""
    pipeline = make(batch_records=1)
    events = pipeline.story.session("s", WRONG, RIGHT, WRONG, RIGHT)
    await pipeline.send(events)
    await pipeline.drain()
    assert held(pipeline) == 0
    pipeline.crash()
    return pipeline, events


async def test_a_session_that_begins_again_does_not_hold_the_commit_for_ever(log_pipeline: MakePipeline) -> None:
    pipeline, events = await closed_and_forgotten(log_pipeline)
    before = await pipeline.knowledge()
    await pipeline.send(events[:3])
    await pipeline.drain()
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


async def test_a_correction_that_came_with_it_counts(log_pipeline: MakePipeline) -> None:
    pipeline, events = await closed_and_forgotten(log_pipeline)
    await pipeline.send([events[0], pipeline.story.feedback("s", "failure"), events[2]])
    await pipeline.drain()
    await wait(pipeline)
    [judgment] = await pipeline.bodies("judgments")
    assert (judgment["label"], judgment["source"], judgment["events"]) == ("failure", "feedback", 6)
    assert await pipeline.dead_letters() == []


async def test_a_session_that_is_still_open_holds_the_commit_however_often_the_store_is_asked(
    log_pipeline: MakePipeline,
) -> None:
    pipeline = log_pipeline(batch_records=1)
    events = pipeline.story.session("s", WRONG, RIGHT)
    await pipeline.send(events[:2])
    for _ in range(8):
        await wait(pipeline, LONGEST_CHECK_SECONDS)
    assert held(pipeline) == 2
    pipeline.crash()
    await pipeline.send(events[2:])
    await pipeline.drain()
    assert [row["events"] for row in await pipeline.bodies("judgments")] == [4]
    assert held(pipeline) == 0


async def test_a_session_that_was_silent_and_goes_on_holds_the_commit_as_soon_as_it_tells_news(
    log_pipeline: MakePipeline,
) -> None:
    pipeline = log_pipeline(batch_records=1, silent_seconds=60.0)
    events = pipeline.story.session("s", WRONG, RIGHT, RIGHT)
    await pipeline.send(events[:2])
    later = [pipeline.story.session(f"later-{number}", start=1_760_000_100.0) for number in range(8)]
    await pipeline.send([event for each in later for event in each])
    await pipeline.drain()
    assert held(pipeline) == 0
    pipeline.crash()
    await pipeline.send(events[:3])
    await wait(pipeline)
    assert held(pipeline) == 3, "its third event is behind no judgment"
    await pipeline.send(events[3:])
    await pipeline.drain()
    assert {row["session"]: row["events"] for row in await pipeline.bodies("judgments")}["s"] == 5
    assert held(pipeline) == 0


async def test_an_outage_of_the_store_only_puts_it_off(log_pipeline: MakePipeline, monkeypatch: Any) -> None:
    pipeline, events = await closed_and_forgotten(log_pipeline)
    await pipeline.send(events[:1])
    await pipeline.drain()

    async def away(*_: object) -> dict[str, dict[str, Any]]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.store, "get", away)
        await wait(pipeline)
    assert held(pipeline) == 1
    await wait(pipeline, 2 * FIRST_CHECK_SECONDS)
    assert held(pipeline) == 0


@given(
    upto=st.integers(1, 30),
    repeats=st.lists(st.tuples(st.booleans(), st.integers(0, 29), st.integers(1, 8)), min_size=1, max_size=5),
    batch_records=st.integers(1, 5),
)
@example(upto=14, repeats=[(True, 0, 3)], batch_records=1)  # its end is read again before its beginning comes again
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
async def test_the_end_is_the_same_with_and_without_what_is_sent_again(
    log_pipeline: MakePipeline, upto: int, repeats: list[tuple[bool, int, int]], batch_records: int
) -> None:
    """Anything that came before, in any order of stretches, by workers that die between; and then the rest."""
    undisturbed = log_pipeline()
    events = undisturbed.story.interleaved(undisturbed.story.fleet(), seed=1)
    assert len(events) == 30
    await undisturbed.send(events)
    await undisturbed.drain()
    pipeline = log_pipeline(batch_records=batch_records)
    await pipeline.send(events[:upto])
    for dies, start, count in repeats:
        await pipeline.drain()
        if dies:
            pipeline.crash()
        await pipeline.send(events[:upto][start % upto :][:count])
    await pipeline.send(events[upto:])
    await pipeline.drain()
    await wait(pipeline)
    assert await pipeline.knowledge() == await undisturbed.knowledge()
    assert held(pipeline) == 0
    assert await pipeline.dead_letters() == []
