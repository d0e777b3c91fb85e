"""The delivery core: nothing may be committed before its effects are acknowledged, and an outage is waited out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from fleetlore.errors import BrokerUnavailable, StoreUnavailable
from fleetlore.testing.clock import FakeClock
from sinks.metrics import Metrics
from streams.delivery import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Delivery, Ledger
from streams.stage import DeadLetter, Effects, Outgoing, Record, TopicPartition

EVENTS = "fleetlore.acme.events"
PARTITION = TopicPartition(EVENTS, 0)


class World:
    """Store, outbox and stage in one, noting the order of what happens; `outages` are raised first, one an attempt."""

    name = "sessions"
    reads = "events"

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.outages: dict[str, list[Exception]] = {}
        self.effects = Effects(
            rows={"items": [{"id": "acme/1"}]},
            outgoing=[Outgoing("acme", "items", "1", b"{}")],
            dead_letters=[],
            processed=2,
        )
        self.buried: list[tuple[str, bytes | None, bytes, dict[str, bytes]]] = []
        self.held_back = 0

    def _happen(self, what: str) -> None:
        left = self.outages.get(what)
        if left:
            self.happened.append(f"{what} fails")
            raise left.pop(0)
        self.happened.append(what)

    async def process(self, batch: Sequence[Record]) -> Effects:
        self._happen("process")
        return self.effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        self._happen("allow")
        return next_offset - self.held_back

    def forget(self) -> None: ...

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        self._happen("upsert")

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        return {}

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        self._happen("deliver")

    async def bury(self, name: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._happen("bury")
        self.buried.append((name, key, value, dict(headers)))


def record(offset: int, partition: int = 0, value: bytes = b"{}") -> Record:
    return Record(EVENTS, partition, offset, b"key", value, {})


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClock]:
    """Sleeping lets the fake clock pass, and no time."""
    fake = FakeClock()
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    pauses: list[float] = []

    async def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        fake.advance(seconds)
        await sleep(0)

    monkeypatch.setattr("streams.delivery.asyncio.sleep", pass_time)
    fake.pauses = pauses  # type: ignore[attr-defined]
    yield fake


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("test")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def delivery(world: World, metrics: Metrics, clock: FakeClock, ledger: Ledger) -> Delivery:
    return Delivery(world, world, metrics, clock, ledger, budget_seconds=60.0)


async def test_offsets_are_allowed_only_after_every_sink(world: World, delivery: Delivery, ledger: Ledger) -> None:
    world.effects.dead_letters.append(DeadLetter(record(3), b"bad", "not_json", "no"))
    await delivery.run(world, [record(3), record(4)])
    assert world.happened[0] == "process"
    assert sorted(world.happened[1:4]) == ["bury", "deliver", "upsert"]
    assert world.happened[4:] == ["allow"]
    assert ledger.take() == {PARTITION: 5}
    assert ledger.positions() == {PARTITION: 5}


@pytest.mark.parametrize("sink", ["upsert", "deliver", "bury"])
async def test_while_a_sink_is_under_way_nothing_may_be_committed(
    world: World, delivery: Delivery, ledger: Ledger, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.effects.dead_letters.append(DeadLetter(record(0), b"bad", "not_json", "no"))
    acknowledged = asyncio.Event()

    async def slow(*_: object) -> None:
        await acknowledged.wait()

    monkeypatch.setattr(world, sink, slow)
    running = asyncio.create_task(delivery.run(world, [record(0)]))
    for _ in range(20):
        await asyncio.tasks.sleep(0)
    assert not running.done()
    assert ledger.take() == {}
    acknowledged.set()
    await running
    assert ledger.take() == {PARTITION: 1}


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
    await delivery.run(world, [record(0)])
    assert world.happened.count(f"{what} fails") == 9
    assert world.happened.count(what) == 1
    assert all(world.happened.count(other) == 1 for other in {"process", "upsert", "deliver", "bury"})
    assert clock.pauses[0] == FIRST_PAUSE_SECONDS
    assert clock.pauses == [min(FIRST_PAUSE_SECONDS * 2**n, LONGEST_PAUSE_SECONDS) for n in range(9)]
    assert ledger.take() == {PARTITION: 1}


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


async def test_a_dead_letter_says_where_it_lay_and_why(world: World, delivery: Delivery) -> None:
    world.effects.dead_letters.append(DeadLetter(record(3, 1), b"bad", "not_json", "unexpected end"))
    await delivery.run(world, [record(3, 1)])
    [(name, key, value, headers)] = world.buried
    assert (name, key, value) == ("fleetlore.acme.dead-letters", b"key", b"bad")
    assert headers["dlq.topic"] == EVENTS.encode()
    assert (headers["dlq.partition"], headers["dlq.offset"]) == (b"1", b"3")
    assert (headers["dlq.stage"], headers["dlq.reason"]) == (b"sessions", b"not_json")
    assert headers["dlq.detail"] == b"unexpected end"


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


def test_the_ledger_gives_what_has_moved_once() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 3)
    assert ledger.take() == {PARTITION: 3}
    ledger.settle({PARTITION: 3})
    assert ledger.take() == {}
    ledger.allow(PARTITION, 9, 3)
    assert ledger.take() == {}, "an open session holds it back: there is nothing new to commit"
    assert ledger.positions() == {PARTITION: 9}
    ledger.allow(PARTITION, 9, 9)
    assert ledger.take() == {PARTITION: 9}


def test_the_ledger_keeps_the_newest_of_several_allowances() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.allow(PARTITION, 8, 8)
    assert ledger.take() == {PARTITION: 8}


def test_a_commit_that_failed_is_tried_again_with_the_next_allowance() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.take()  # and no settle: the broker did not take it
    ledger.allow(PARTITION, 5, 5)
    assert ledger.take() == {PARTITION: 5}


def test_after_a_rebalance_nothing_of_the_old_assignment_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.settle({PARTITION: 2})
    ledger.forget()
    assert ledger.take() == {}
    assert ledger.positions() == {}
    ledger.allow(PARTITION, 2, 2)
    assert ledger.take() == {PARTITION: 2}, "what another worker committed meanwhile is not known"
