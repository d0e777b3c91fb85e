"""A worker that dies, sleeps or stops anywhere leaves the same knowledge behind as one that does not."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka.errors import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.errors import BrokerUnavailable, LeaseLapsed
from streams.stage.base import Stage
from tests.streams.log_pipeline import LEASE_SECONDS, PARTITIONS, LogPipeline


async def log_of_a_fleet(seed: int = 1, batch_records: int = 4) -> LogPipeline:
    pipeline = LogPipeline(batch_records=batch_records)
    story = pipeline.story
    early, late = story.feedback("bad-2", "success"), story.feedback("bad-1", "success")
    await pipeline.send([early, *story.interleaved(story.fleet(), seed), late], per_record=2)
    return pipeline


async def test_a_crash_in_the_middle_of_every_delivery_gives_the_same_knowledge() -> None:
    undisturbed = await log_of_a_fleet()
    await undisturbed.drain()
    expected = await undisturbed.knowledge()
    for delivery in range(1, undisturbed.producer.deliveries + 1):
        pipeline = await log_of_a_fleet()
        pipeline.producer.fails_at = {delivery}
        with pytest.raises(BrokerUnavailable):
            await pipeline.drain()
        pipeline.crash()
        await pipeline.drain()
        assert await pipeline.knowledge() == expected, f"died in delivery {delivery}"


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The hashes of what the property test's workers knew, of which there is one."""
    return set()


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 9),
    batch_records=st.integers(1, 9),
    lives=st.lists(st.lists(st.booleans(), max_size=25), max_size=4),
    dying=st.sets(st.integers(1, 30), max_size=3),
)
async def test_any_number_of_crashes_and_any_batches_give_the_same_knowledge(
    known: set[str], seed: int, batch_records: int, lives: list[list[bool]], dying: set[int]
) -> None:
    """Each life of the worker is a list of batches, each committed or not; some die in the middle of a delivery."""
    pipeline = await log_of_a_fleet(seed, batch_records)
    pipeline.producer.fails_at = dying
    for life in lives:
        with suppress(BrokerUnavailable):
            for commits in life:
                await pipeline.step()
                if commits:
                    pipeline.commit()
        pipeline.crash()
    pipeline.producer.fails_at = set()
    await pipeline.drain()
    known.add((await pipeline.knowledge()).state_hash)
    assert len(known) == 1


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
