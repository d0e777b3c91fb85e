"""A session whose end overtakes other events is judged once, when it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlore.wire.topics import topic
from streams.stages.s1_sessions.stage import GAP_SECONDS
from tests.streams.log_pipeline import LogPipeline

MakePipeline = Callable[..., LogPipeline]

RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")


def trajectories(pipeline: LogPipeline) -> list[dict[str, Any]]:
    records = pipeline.log.read_all(topic(pipeline.tenant, "trajectories"))
    return [value for record in records for value in orjson.loads(record.value)]


async def read_only(pipeline: LogPipeline) -> None:
    """All that was sent, without the empty batch that says that nothing else comes."""
    while any([await pipeline.batch(pipeline.stages[0], partition) for partition in (0, 1)]):
        pass


@given(order=st.permutations(range(6)), batch_records=st.integers(1, 6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_events_in_any_order_are_one_session(
    log_pipeline: MakePipeline, order: list[int], batch_records: int
) -> None:
    expected = log_pipeline()
    events = expected.story.session("s", WRONG, RIGHT, WRONG, RIGHT)
    await expected.send(events)
    await expected.drain()
    pipeline = log_pipeline(batch_records=batch_records)
    await pipeline.send([events[place] for place in order])
    await pipeline.drain()
    assert await pipeline.knowledge() == await expected.knowledge()
    assert await pipeline.dead_letters() == []
    assert [value["events"] for value in trajectories(pipeline)] == [6]


async def test_a_session_that_is_sent_again_after_its_head_was_committed_is_whole(
    log_pipeline: MakePipeline,
) -> None:
    """A worker that starts behind a session's first events knows its tail only, and then gets all of it again."""
    events = log_pipeline().story.session("s", WRONG, RIGHT, WRONG, RIGHT)
    pipeline = log_pipeline(batch_records=1)
    await pipeline.send(events)
    await pipeline.drain()
    pipeline.crash()
    await pipeline.send(events[3:])
    await pipeline.drain()
    await pipeline.send(events)
    await pipeline.drain()
    assert [value["events"] for value in trajectories(pipeline)] == [6], "the store knows it"


async def test_what_never_comes_is_waited_for_only_so_long(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=1)
    events = pipeline.story.session("torn", RIGHT, WRONG, RIGHT)
    await pipeline.send([*events[:2], *events[3:]])
    await read_only(pipeline)
    assert trajectories(pipeline) == []
    pipeline.clock.advance(GAP_SECONDS)
    others = [pipeline.story.session(f"other-{number}") for number in range(8)]
    await pipeline.send([event for other in others for event in other])
    await read_only(pipeline)
    closed = {value["session"]: value.get("missing", 0) for value in trajectories(pipeline)}
    assert closed == {"torn": 1} | {f"other-{number}": 0 for number in range(8)}


async def test_the_commit_waits_with_the_session(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=1)
    events = pipeline.story.session("torn", RIGHT, WRONG, RIGHT)
    await pipeline.send([*events[:2], *events[3:]])
    await read_only(pipeline)
    pipeline.commit()
    assert sorted(pipeline.committed("events").values()) == [(0, 0), (0, 4)]
    pipeline.crash()
    await pipeline.send([events[2]])
    await pipeline.drain()
    assert [(value["events"], value.get("missing", 0)) for value in trajectories(pipeline)] == [(5, 0)]
    assert sorted(pipeline.committed("events").values()) == [(0, 0), (5, 5)]
