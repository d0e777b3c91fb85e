"""Two workers that take themselves for the owner of the same partitions, on one log and one store."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import CommitFailedError

from fleetlore.errors import LeaseLapsed
from streams.stage.base import Stage
from tests.streams.log_pipeline import LEASE_SECONDS, PARTITIONS, LogPipeline


def stage_of(pipeline: LogPipeline, reads: str) -> Stage:
    return next(stage for stage in pipeline.stages if stage.reads == reads)


async def begun() -> tuple[LogPipeline, str]:
    """A worker that holds changes which it has not written, and the state that the log ends in when nothing happens."""
    calm, first = LogPipeline(), LogPipeline()
    sessions = first.story.fleet()
    for pipeline in (calm, first):
        for session in sessions:
            await pipeline.send(session)
    await calm.drain()
    for partition in range(PARTITIONS):
        while await first.batch(stage_of(first, "events"), partition):
            pass
        await first.batch(stage_of(first, "observations"), partition)
    assert stage_of(first, "observations").holds
    return first, (await calm.knowledge()).state_hash


async def test_who_was_asleep_while_another_took_over_writes_and_commits_nothing() -> None:
    first, expected = await begun()
    first.clock.advance(2 * LEASE_SECONDS)
    second = first.another()
    await second.drain()
    assert (await second.knowledge()).state_hash == expected
    committed = {name: second.committed(name) for name in ("events", "observations", "trajectories", "candidates")}
    for stage in first.stages:
        with pytest.raises(LeaseLapsed):
            await first.run(stage, [])
    with pytest.raises(CommitFailedError):
        first.commit()
    assert (await second.knowledge()).state_hash == expected
    assert {name: second.committed(name) for name in committed} == committed


async def test_a_write_that_was_on_its_way_when_another_took_over_does_not_stay() -> None:
    first, expected = await begun()
    gate = first.store.gates["patterns"] = asyncio.Event()
    late = asyncio.create_task(first.run(stage_of(first, "observations"), []))
    while "patterns" in first.store.gates:
        await asyncio.sleep(0)
    second = first.another()
    await second.drain()
    assert (await second.knowledge()).state_hash == expected
    gate.set()
    await late
    assert (await second.knowledge()).state_hash != expected, "older rows have gone over newer ones"
    second.clock.advance(LEASE_SECONDS)
    await second.drain()
    assert (await second.knowledge()).state_hash == expected
