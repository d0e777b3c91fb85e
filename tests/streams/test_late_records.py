"""Writes of a former owner land after those of its successor, and agents still read the successor's lore."""

from collections.abc import Mapping, Sequence
from unittest.mock import AsyncMock

import pytest

from fleetlore.errors import BrokerUnavailable, RecordsRefused
from fleetlore.wire.topics import topic
from sinks.producer import POSITION
from streams.runtime.stale_records import SOURCES, WAIT_SECONDS, StaleRecords
from streams.stage.base import Outgoing, TopicPartition
from tests.chaos.accounting import stale_keys
from tests.streams.log_pipeline import BASE_TIME, PARTITIONS, LogPipeline, LogProducer

PATTERNS, OBSERVATIONS = topic("acme", "patterns"), topic("acme", "observations")


class Stalled(LogProducer):
    """The link of a worker that stands still: nothing is acknowledged, and nothing is lost."""

    stands_still = False

    async def deliver(self, values: Sequence[Outgoing], positions: Mapping[tuple[str, int], int] = {}) -> None:
        if not self.stands_still:
            return await super().deliver(values, positions)
        self.parked = [*getattr(self, "parked", []), (list(values), dict(positions))]
        raise BrokerUnavailable("no answer within the deadline")

    async def flow(self) -> None:
        """Deliver the delayed records."""
        for values, positions in self.parked:
            await super().deliver(values, positions)


async def mend(pipeline: LogPipeline) -> int:
    """Repair stale keys like `mend_stale`; return the number of keys that it asked for."""
    stale = StaleRecords(lambda tp: True, pipeline.clock)
    for name in SOURCES:
        for partition in range(PARTITIONS):
            for record in pipeline.log.read(topic("acme", name), partition):
                stale.see(record.topic, partition, record.key, record.headers)
    stale.check({tp: pipeline.log.end_offset(*tp) for tp in stale.found})
    asked = await requests(stale)
    await pipeline.producer.deliver(asked)
    await pipeline.drain()
    return len(asked)


async def requests(stale: StaleRecords) -> list[Outgoing]:
    asked: list[Outgoing] = []

    async def deliver(values: Sequence[Outgoing]) -> None:
        asked.extend(values)

    await stale.ask(deliver)
    return asked


async def stale(pipeline: LogPipeline) -> dict[str, list[str]]:
    newest = {
        name: {(record.key or b"").decode(): record.value for record in pipeline.log.read_all(topic("acme", name))}
        for name in SOURCES
    }
    return await stale_keys(pipeline.store, "acme", newest)


async def test_what_lands_late_is_written_over_again() -> None:
    first = LogPipeline()
    first.producer = link = Stalled(first.log)
    first.start()
    story = first.story
    for number in range(8):
        await first.send(story.session(f"a{number}", ("bash", {"x": number}, "", f"no such thing {number % 3}")))
    for stage in first.stages:
        for partition in range(PARTITIONS):
            while await first.batch(stage, partition):
                first.commit()
    link.stands_still = True
    for stage in first.stages:
        if stage.holds:
            with pytest.raises(BrokerUnavailable):
                await first.run(stage, [])
    second = first.another()
    second.producer = LogProducer(second.log)
    second.start()
    for number in range(8):
        start = BASE_TIME + 100
        await second.send(
            story.session(f"b{number}", ("bash", {"x": number}, "", f"no such thing {number % 3}"), start=start)
        )
    await second.drain()
    second.clock.advance(60.0)
    await second.drain()
    assert await stale(second) == {"patterns": [], "items": []}
    await link.flow()
    assert (await stale(second))["patterns"]
    assert await mend(second) > 0
    assert await stale(second) == {"patterns": [], "items": []}


async def test_of_what_nothing_is_left_a_late_record_goes() -> None:
    pipeline = LogPipeline()
    await pipeline.producer.deliver([Outgoing("acme", "items", "item1", b"{}")], {("acme", 0): 5, ("acme", 1): 5})
    await pipeline.producer.deliver([Outgoing("acme", "items", "item1", b"{}")], {("acme", 0): 4, ("acme", 1): 4})
    for _ in range(8):
        await pipeline.producer.deliver([Outgoing("acme", "candidates", key, b"{}") for key in "abcd"])
    assert await mend(pipeline) == 1
    assert pipeline.log.read_all(topic("acme", "items"))[-1].value is None


def seen(stale: StaleRecords, *positions: int, partition: int = 0) -> StaleRecords:
    for position in positions:
        stale.see(PATTERNS, partition, b"k%d" % position, [(POSITION, b"%d" % position)])
    return stale


async def test_positions_of_each_partition_only_grow() -> None:
    stale = seen(seen(StaleRecords(lambda tp: True), 3, 3, 7, 9), 1, partition=1)
    stale.see(PATTERNS, 0, b"key", [])
    stale.see(PATTERNS, 0, None, [(POSITION, b"1")])
    for position in (None, b"", b"x", b"\xff", b"-1", b"9" * 5_000):
        stale.see(PATTERNS, 0, b"key", [(POSITION, b"9"), (POSITION, position)])
    assert stale.found == [] and await requests(stale) == []
    stale.see(PATTERNS, 0, b"\xff", [(POSITION, b"1")])
    assert await requests(stale) == [], "no key of ours"
    assert [each.key for each in await requests(seen(stale, 8, 9, 4))] == ["k8", "k4"]
    assert await requests(stale) == []


async def test_the_owner_asks_and_what_nobody_owns_waits_for_one() -> None:
    pipeline = LogPipeline()
    mine: set[TopicPartition] = set()
    stale = seen(StaleRecords(mine.__contains__, pipeline.clock), 9, 8)
    assert await requests(stale) == [] and stale.found
    mine.add(TopicPartition(OBSERVATIONS, 0))
    assert [(each.topic, each.key) for each in await requests(stale)] == [("observations", "k8")]
    mine.clear()
    seen(stale, 7)
    pipeline.clock.advance(WAIT_SECONDS + 1)
    assert await requests(stale) == [] and not stale.found


async def test_a_source_that_was_made_anew_has_positions_of_its_own() -> None:
    stale = seen(StaleRecords(lambda tp: True), 900, 3)
    stale.check({TopicPartition(OBSERVATIONS, 0): 4})
    assert await requests(stale) == []
    assert await requests(seen(stale, 4, 5)) == []
    assert [each.key for each in await requests(seen(stale, 2))] == ["k2"]


async def test_a_key_is_asked_for_again_until_the_broker_has_the_request() -> None:
    stale = seen(StaleRecords(lambda tp: True), 9, 8)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            await stale.ask(AsyncMock(side_effect=BrokerUnavailable("away")))
    assert [each.key for each in await requests(stale)] == ["k8"]
    assert await requests(stale) == []


async def test_a_key_that_the_broker_never_takes_does_not_hold_up_the_others() -> None:
    stale = seen(StaleRecords(lambda tp: True), 9, 8)
    await stale.ask(AsyncMock(side_effect=RecordsRefused(((OBSERVATIONS, b"k8"),), "too large")))
    assert await requests(stale) == []
