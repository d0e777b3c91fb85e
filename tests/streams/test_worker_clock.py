"""A worker's wall clock says nothing of events: any two workers, and a replay, take the same ones."""

from __future__ import annotations

import pytest

from tests.streams.log_pipeline import LogPipeline

HOUR = 3_600.0


@pytest.mark.parametrize("off", [-3 * HOUR, -600.0, 0.0, 3 * HOUR])
async def test_a_workers_clock_changes_nothing(off: float) -> None:
    pipeline = LogPipeline()
    now = pipeline.broker_clock.now()
    events = [event._replace(time=now + n) for n, event in enumerate(pipeline.story.fleet()[0])]
    pipeline.clock.set(now + off)
    await pipeline.send(events)
    await pipeline.drain()
    assert await pipeline.dead_letters() == []
    assert [session for session, *_ in (await pipeline.knowledge()).judgments] == ["good-1"]


async def test_the_brokers_clock_refuses_what_is_of_the_future() -> None:
    pipeline = LogPipeline()
    pipeline.clock.set(pipeline.broker_clock.now() + HOUR)
    events = [
        event._replace(time=pipeline.broker_clock.now() + HOUR + n) for n, event in enumerate(pipeline.story.fleet()[0])
    ]
    await pipeline.send(events)
    await pipeline.drain()
    assert {headers["dlq.reason"] for headers, _ in await pipeline.dead_letters()} == {"future_time"}
