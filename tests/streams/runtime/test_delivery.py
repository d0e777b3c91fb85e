"""Delivery: nothing is committed before its effects are acknowledged, and an outage is retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson
import pytest

from fleetlore.errors import BreakerTripped, BrokerUnavailable, ConfigError, RowRefused, StoreUnavailable
from fleetlore.kafka.client import backoff
from fleetlore.testing.clock import FakeClock
from fleetlore.wire.dead_letter import RawRecord
from sinks.metrics import Metrics
from streams.runtime.circuit_breaker import Breaker
from streams.runtime.delivery import Delivery
from streams.runtime.ledger import Ledger
from streams.stage.base import DeadLetter, Effects, Outgoing, Record, TopicPartition

EVENTS = "fleetlore.acme.events"
PARTITION = TopicPartition(EVENTS, 0)


class World:
    """Store, producer and stage in one, noting the order of what happens; `outages` are raised first, one an attempt."""

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
        self.buried: list[RawRecord] = []
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

    async def resolve(self, collection: str) -> str:
        return collection

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        return {}

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        self._happen("deliver")

    async def send(self, letters: Sequence[RawRecord]) -> None:
        self._happen("bury")
        self.buried += letters


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

    monkeypatch.setattr("streams.runtime.delivery.asyncio.sleep", pass_time)
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
    for _ in range(20):
        await asyncio.tasks.sleep(0)
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
        world.effects = Effects(rows={"items": [{"id": "acme/1"}]}, acknowledged=lambda: self._acknowledged(world))
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


async def turns() -> None:
    for _ in range(20):
        await asyncio.tasks.sleep(0)


async def test_the_next_batch_does_not_wait_for_rows_that_are_written_behind(
    world: World, delivery: Delivery, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world, monkeypatch)
    await delivery.run(world, [record(0)])
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
    world: World, delivery: Delivery, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world, monkeypatch)
    await delivery.run(world, [record(0)])
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
    world: World, delivery: Delivery, ledger: Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world, monkeypatch)
    await delivery.run(world, [record(0)])
    await turns()
    slow.outage = True
    slow.doors[0].set()
    clock.advance(61)
    await turns()
    with pytest.raises(StoreUnavailable):
        await delivery.run(world, [])
    assert ledger.take() == {PARTITION: 0}


async def test_what_is_being_written_when_partitions_move_allows_nothing(
    world: World, delivery: Delivery, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world, monkeypatch)
    await delivery.run(world, [record(0)])
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


async def test_a_dead_letter_says_where_it_lay_and_why(world: World, delivery: Delivery) -> None:
    world.effects.dead_letters.append(DeadLetter(record(3, 1), b"bad", "not_json", "unexpected end"))
    await delivery.run(world, [record(3, 1)])
    [letter] = world.buried
    headers = dict(letter.headers)
    assert (letter.topic, letter.key, letter.value) == ("fleetlore.acme.dead-letters", b"key", b"bad")
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


def lost(offset: int, partition: int = 0, value: bytes = b"bad") -> DeadLetter:
    return DeadLetter(record(offset, partition, value), value, "not_json", "no")


def breaking(
    world: World, metrics: Metrics, clock: FakeClock, run_records: int
) -> tuple[Delivery, Callable[[int, int, bool], Awaitable[None]], Ledger]:
    """A delivery whose breaker trips early; and `send(first, last, good)`: a batch of one partition's records."""
    ledger = Ledger(clock)
    delivery = Delivery(world, world, metrics, clock, ledger, 60.0, Breaker(0.5, run_records))

    async def send(first: int, last: int, good: bool) -> None:
        world.effects = Effects(dead_letters=[] if good else [lost(offset) for offset in range(first, last)])
        await delivery.run(world, [record(offset, value=b"bad") for offset in range(first, last)])

    return delivery, send, ledger


async def test_a_stream_that_is_refused_wholesale_stops_before_its_batch_has_any_effect(
    world: World, metrics: Metrics, clock: FakeClock
) -> None:
    _, send, ledger = breaking(world, metrics, clock, run_records=20)
    await send(0, 19, False)
    ledger.settle(ledger.take())
    happened, buried = list(world.happened), len(world.buried)
    with pytest.raises(BreakerTripped, match=r"fleetlore.acme.events: the last 20 .*not_json 20; partition 0 from 0"):
        await send(19, 40, False)
    assert world.happened == [*happened, "process"]
    assert len(world.buried) == buried == 19
    clock.advance(3600)
    assert ledger.take() == {}, "however long the stop takes"
    assert metrics.registry.get_sample_value("fleetlore_lost_run_records", {"stream": EVENTS}) == 20


async def test_the_next_worker_finds_the_run_in_the_log_and_stops_there_again(
    world: World, metrics: Metrics, clock: FakeClock
) -> None:
    async def worker(offset: int) -> tuple[int, int]:
        """Batches of three, as from a slow producer; where it stopped, and what it had committed by then."""
        committed = offset
        _, send, ledger = breaking(world, metrics, clock, run_records=40)
        while True:
            try:
                await send(offset, offset + 3, offset < 30)
            except BreakerTripped:
                return offset, max([committed, *ledger.take().values()])
            moved = ledger.take()
            ledger.settle(moved)
            committed = max([committed, *moved.values()])
            offset += 3
            clock.advance(1)

    stopped, committed = await worker(0)
    assert (stopped, committed) == (69, 39), "the run begins at 30 and is suspect after 10 records"
    for _ in range(5):
        assert await worker(committed) == (78, 39)


async def test_a_few_bad_records_hold_no_commit_back_and_a_run_only_for_some_seconds(
    world: World, metrics: Metrics, clock: FakeClock
) -> None:
    _, send, ledger = breaking(world, metrics, clock, run_records=1000)
    await send(0, 1, True)
    await send(1, 9, False)
    assert ledger.take() == {PARTITION: 9}
    ledger.settle({PARTITION: 9})
    await send(9, 15, False)
    assert ledger.take() == {}
    clock.advance(11)
    assert ledger.take() == {PARTITION: 15}
    ledger.settle({PARTITION: 15})
    await send(15, 25, False)
    assert ledger.take() == {}
    await send(25, 26, True)
    clock.advance(11)
    assert ledger.take() == {PARTITION: 26}


async def test_a_rebalance_starts_the_count_anew(world: World, metrics: Metrics, clock: FakeClock) -> None:
    delivery, send, ledger = breaking(world, metrics, clock, run_records=20)
    await send(0, 15, False)
    delivery.forget()
    assert ledger.positions() == {}
    await send(0, 15, False)
    with pytest.raises(BreakerTripped):
        await send(15, 30, False)


async def test_a_record_with_one_good_event_is_not_lost(world: World, metrics: Metrics, clock: FakeClock) -> None:
    delivery, _, _ = breaking(world, metrics, clock, run_records=5)
    for offset in range(20):
        value = b"[1, 2, 3]"
        bad = [DeadLetter(record(offset, value=value), b"%d" % n, "wrong_shape", "") for n in (1, 2)]
        world.effects = Effects(dead_letters=bad)
        await delivery.run(world, [record(offset, value=value)])
    assert len(world.buried) == 40
    with pytest.raises(BreakerTripped):
        for offset in range(21):
            value = b"[1, 2]"
            bad = [DeadLetter(record(offset, value=value), b"%d" % n, "wrong_shape", "") for n in (1, 2)]
            world.effects = Effects(dead_letters=bad)
            await delivery.run(world, [record(offset, value=value)])


async def test_gaps_are_no_sign_of_a_broken_stream(world: World, metrics: Metrics, clock: FakeClock) -> None:
    delivery, _, _ = breaking(world, metrics, clock, run_records=3)
    for offset in range(9):
        world.effects = Effects(dead_letters=[DeadLetter(record(offset), b"{}", "sequence_gap", "")])
        await delivery.run(world, [record(offset)])


async def test_a_record_of_a_thousand_bad_events_is_one_letter(world: World, delivery: Delivery) -> None:
    value = orjson.dumps([1] * 1000)
    world.effects.dead_letters += [DeadLetter(record(3, value=value), b"1", "wrong_shape", "no object")] * 1000
    await delivery.run(world, [record(3, value=value), record(4)])
    [letter] = world.buried
    assert letter.value == value
    assert dict(letter.headers)["dlq.detail"].startswith(b"1000 bad events")


async def test_a_row_that_the_store_never_takes_is_a_dead_letter(
    world: World, delivery: Delivery, ledger: Ledger, metrics: Metrics
) -> None:
    rows = [{"id": "acme/1", "tenant": "acme", "body": "x"}, {"id": "acme/2", "tenant": "acme", "body": "y"}]
    world.effects.rows = {"items": rows}
    world.outages["upsert"] = [StoreUnavailable("away"), RowRefused("items", ("acme/2",), "body is too long")]
    await delivery.run(world, [record(6), record(7)])
    [letter] = world.buried
    assert orjson.loads(letter.value) == rows[1]
    headers = dict(letter.headers)
    assert (headers["dlq.reason"], headers["dlq.detail"]) == (b"row_refused", b"body is too long")
    assert (headers["dlq.topic"], headers["dlq.offset"]) == (EVENTS.encode(), b"7")
    assert world.happened.index("bury") < world.happened.index("allow")
    assert ledger.take() == {PARTITION: 8}
    assert metrics.registry.get_sample_value("fleetlore_dead_letters_total", {"reason": "row_refused"}) == 1


async def test_a_store_that_refuses_every_row_stops_the_worker(
    world: World, metrics: Metrics, clock: FakeClock
) -> None:
    delivery, _, ledger = breaking(world, metrics, clock, run_records=3)
    rows = [{"id": "acme/1", "tenant": "acme"}, {"id": "acme/2", "tenant": "acme"}]
    world.effects.rows = {"items": rows}
    for offset in range(5):  # the other row is taken each time
        world.outages["upsert"] = [RowRefused("items", ("acme/2",), "no such column")]
        await delivery.run(world, [record(offset)])
    delivery, _, ledger = breaking(world, metrics, clock, run_records=3)
    world.outages["upsert"] = [RowRefused("items", ("acme/1", "acme/2"), "no such column")]
    await delivery.run(world, [record(5)])
    ledger.settle(ledger.take())
    world.outages["upsert"] = [RowRefused("items", ("acme/1", "acme/2"), "no such column")]
    with pytest.raises(BreakerTripped, match=r"^items: the last 3 .*row_refused 3"):
        await delivery.run(world, [record(6)])
    assert ledger.take() == {}


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


def test_a_commit_that_failed_is_tried_again_where_nothing_more_comes() -> None:
    ledger, other = Ledger(), TopicPartition(PARTITION.topic, 99)
    ledger.allow(PARTITION, 5, 5)
    ledger.allow(other, 7, 7)
    taken = ledger.take()
    ledger.allow(other, 9, 9)
    ledger.put_back(taken)
    assert ledger.take() == {PARTITION: 5, other: 9}


def test_an_answer_that_comes_after_a_rebalance_says_nothing_of_the_new_assignment() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    taken = ledger.take()
    ledger.forget()
    ledger.settle(taken)
    ledger.put_back(taken)
    assert ledger.take() == {}
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
