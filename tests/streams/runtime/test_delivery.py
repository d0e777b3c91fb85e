"""Delivery: nothing is committed before its effects are acknowledged, and an outage is retried."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from fleetlore.errors import BrokerUnavailable, ConfigError, RecordsRefused, StoreUnavailable
from fleetlore.kafka.client import backoff
from fleetlore.testing import FakeClock
from sinks.metrics import Metrics
from streams.runtime.delivery import Delivery, Ledger
from streams.stage.base import DeadLetter, Effects, Outgoing, TopicPartition
from tests.streams.runtime.world import EVENTS, PARTITION, World, record


async def test_a_second_reader_of_a_topic_is_refused(world: World, delivery: Delivery, ledger: Ledger) -> None:
    await delivery.run(world, [record(0)])
    other = World()
    other.name = "other"
    with pytest.raises(ConfigError, match="'other'"):
        await delivery.run(other, [record(0), record(1)])
    assert other.happened == [] and ledger.take() == {PARTITION: 1}


@pytest.mark.parametrize("sink", ["upsert", "deliver", "send"])
async def test_while_a_sink_is_under_way_nothing_may_be_committed(
    world: World, delivery: Delivery, ledger: Ledger, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.effects.dead_letters.append(DeadLetter(record(0), b"bad", "not_json", "no"))
    acknowledged = asyncio.Event()

    async def slow(*_: object) -> None:
        await acknowledged.wait()

    monkeypatch.setattr(world, sink, slow)
    running = asyncio.create_task(delivery.run(world, [record(0), record(1)]))
    await turns()
    assert not running.done()
    assert ledger.take() == {}
    acknowledged.set()
    await running
    assert ledger.take() == {PARTITION: 2}


class Slow:
    """A store that takes its time: each write waits until it is let through."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.doors: list[asyncio.Event] = []
        self.outage = False
        world.effects = Effects(
            rows={"items": [{"id": "acme/1", "tenant": "acme"}]}, acknowledged=lambda: self._acknowledged(world)
        )
        world.held_back = 1
        monkeypatch.setattr(world, "upsert", self._upsert)

    async def _upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        self.begun.append(rows[0]["id"])
        self.doors.append(asyncio.Event())
        await self.doors[-1].wait()
        if self.outage:
            raise StoreUnavailable("away")

    @staticmethod
    def _acknowledged(world: World) -> None:
        world.held_back = 0


@pytest.fixture
async def slow(world: World, delivery: Delivery, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A slow store, and a first batch whose rows it has not written yet."""
    store = Slow(world, monkeypatch)
    await delivery.run(world, [record(0)])
    return store


async def turns() -> None:
    for _ in range(20):
        await asyncio.tasks.sleep(0)


async def test_the_next_batch_does_not_wait_for_rows_that_are_written_behind(
    world: World, delivery: Delivery, ledger: Ledger, slow: Slow
) -> None:
    assert ledger.take() == {PARTITION: 0}
    world.effects = Effects(outgoing=[Outgoing("acme", "items", "1", b"{}")])
    world.happened.clear()
    await delivery.run(world, [record(1)])
    assert world.happened == ["process", "deliver", "allow"]
    assert slow.begun == ["acme/1"]
    slow.doors[0].set()
    await turns()
    assert ledger.take() == {PARTITION: 2}, "the acknowledgement allows the commit by itself"


async def test_rows_wait_for_those_before_them_and_an_empty_batch_for_all(
    world: World, delivery: Delivery, ledger: Ledger, slow: Slow
) -> None:
    second = asyncio.create_task(delivery.run(world, [record(1)]))
    await turns()
    assert not second.done() and len(slow.begun) == 1, "a slow store holds the stage up"
    slow.doors[0].set()
    await second
    world.effects = Effects()
    last = asyncio.create_task(delivery.run(world, []))
    await turns()
    assert not last.done() and len(slow.begun) == 2
    slow.doors[1].set()
    await last
    assert ledger.take() == {PARTITION: 2}


async def test_an_outage_of_what_is_written_behind_ends_the_worker_with_a_later_batch(
    world: World, delivery: Delivery, ledger: Ledger, clock: FakeClock, slow: Slow
) -> None:
    await turns()
    slow.outage = True
    slow.doors[0].set()
    clock.advance(61)
    await turns()
    with pytest.raises(StoreUnavailable):
        await delivery.run(world, [])
    assert ledger.take() == {PARTITION: 0}


async def test_what_is_being_written_when_partitions_move_allows_nothing(
    world: World, delivery: Delivery, ledger: Ledger, slow: Slow
) -> None:
    await turns()
    delivery.forget()
    slow.doors[0].set()
    await turns()
    assert ledger.take() == {} and world.held_back == 1


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("process", StoreUnavailable("away")),
        ("upsert", StoreUnavailable("away")),
        ("deliver", BrokerUnavailable("away")),
        ("bury", BrokerUnavailable("away")),
    ],
)
async def test_an_outage_is_waited_out_with_growing_pauses(
    world: World, delivery: Delivery, ledger: Ledger, clock: Any, what: str, error: Exception
) -> None:
    world.effects.dead_letters.append(DeadLetter(record(0), b"bad", "not_json", "no"))
    world.outages[what] = [error] * 9
    await delivery.run(world, [record(0), record(1)])
    assert world.happened.count(f"{what} fails") == 9
    assert world.happened.count(what) == 1
    assert all(world.happened.count(other) == 1 for other in {"process", "upsert", "deliver", "bury"})
    assert clock.pauses == list(islice(backoff(), 9))
    assert ledger.take() == {PARTITION: 2}


@pytest.mark.parametrize("what", ["process", "upsert", "deliver"])
async def test_an_outage_that_lasts_longer_than_the_budget_is_raised_and_nothing_committed(
    world: World, delivery: Delivery, ledger: Ledger, clock: FakeClock, what: str
) -> None:
    world.outages[what] = [StoreUnavailable("away")] * 1000
    with pytest.raises(StoreUnavailable):
        await delivery.run(world, [record(0)])
    assert 50 < clock.monotonic() <= 60
    assert "allow" not in world.happened
    assert ledger.take() == {}


async def test_a_bug_is_not_retried(world: World, delivery: Delivery, ledger: Ledger) -> None:
    world.outages["process"] = [ValueError("bug")] * 5
    with pytest.raises(ValueError, match="bug"):
        await delivery.run(world, [record(0)])
    assert world.happened == ["process fails"]
    assert ledger.take() == {}


async def test_a_batch_of_several_partitions_moves_each(world: World, delivery: Delivery, ledger: Ledger) -> None:
    world.held_back = 1
    await delivery.run(world, [record(7), record(3, partition=1), record(8), record(4, partition=1)])
    assert ledger.positions() == {PARTITION: 9, TopicPartition(EVENTS, 1): 5}
    assert ledger.take() == {PARTITION: 8, TopicPartition(EVENTS, 1): 4}


async def test_what_was_done_is_counted(world: World, delivery: Delivery, metrics: Metrics) -> None:
    world.effects.dead_letters.append(DeadLetter(record(0), b"bad", "not_json", "no"))
    world.outages["upsert"] = [StoreUnavailable("away")] * 2
    await delivery.run(world, [record(0), record(1)])

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("fleetlore_processed_events_total", stage="sessions") == 2
    assert value("fleetlore_received_records_total", topic=EVENTS) == 2
    assert value("fleetlore_dead_letters_total", reason="not_json") == 1
    assert value("fleetlore_sink_retries_total", collection="items") == 2
    assert value("fleetlore_stage_duration_seconds_count", stage="sessions") == 1


async def test_a_value_that_the_broker_never_takes_is_a_dead_letter_and_no_outage(
    world: World, delivery: Delivery, ledger: Ledger, metrics: Metrics
) -> None:
    world.outages["deliver"] = [RecordsRefused((("fleetlore.acme.items", b"too long"),), "MessageSizeTooLarge")]
    await delivery.run(world, [record(3), record(4)])
    (letter,) = world.dead_letters
    said = dict(letter.headers)
    assert (letter.value, said["dlq.reason"], said["dlq.offset"]) == (b"too long", b"record_refused", b"4")
    assert ledger.take() == {PARTITION: 5}


async def test_a_dead_letter_that_the_broker_never_takes_stops_no_worker(
    world: World, delivery: Delivery, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    world.effects.dead_letters.append(DeadLetter(record(3), b"bad", "not_json", "no"))
    world.outages["bury"] = [RecordsRefused((("fleetlore.acme.dead-letters", b"bad"),), "MessageSizeTooLarge")]
    await delivery.run(world, [record(3), record(4)])
    assert ledger.take() == {PARTITION: 5}
    assert "fleetlore.acme.dead-letters: MessageSizeTooLarge" in caplog.text and "topics apply" in caplog.text
