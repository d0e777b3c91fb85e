"""Offsets are committed once and by their owner: the ledger, the second writes of a new owner, and the lease."""

import asyncio

import pytest

from fleetlore.errors import LeaseLapsed
from fleetlore.testing import FakeClock
from sinks.metrics import Metrics
from streams.runtime.delivery import Delivery, Lease, Ledger, SecondWrites
from streams.stage.base import Effects, Outgoing, TopicPartition
from tests.streams.runtime.world import World, record

PARTITION = TopicPartition("fleetlore.acme.events", 0)


def test_a_commit_that_failed_is_tried_again_where_nothing_more_comes() -> None:
    ledger, other = Ledger(), TopicPartition(PARTITION.topic, 99)
    ledger.allow(PARTITION, 5, 5)
    ledger.allow(other, 7, 7)
    taken = ledger.take()
    ledger.allow(other, 9, 9)
    ledger.put_back(taken)
    assert ledger.take() == {PARTITION: 5, other: 9}


def test_after_a_rebalance_nothing_of_the_old_assignment_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.settle({PARTITION: 2})
    taken = ledger.take()
    ledger.forget()
    ledger.settle(taken)  # its answer comes late
    ledger.put_back(taken)
    assert ledger.take() == {}
    assert ledger.positions() == {}
    ledger.allow(PARTITION, 2, 2)
    assert ledger.take() == {PARTITION: 2}, "what another worker committed meanwhile is not known"


def test_what_a_restart_reads_again_is_counted_until_it_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 3)
    assert ledger.uncommitted() == {PARTITION: 2}
    ledger.settle(ledger.take())
    ledger.allow(PARTITION, 900, 3)
    assert ledger.uncommitted() == {PARTITION: 897}, "a session that never ends holds the commit back"
    ledger.allow(PARTITION, 900, 900)
    assert ledger.uncommitted() == {PARTITION: 897}, "allowed is not committed"
    ledger.settle(ledger.take())
    assert ledger.uncommitted() == {PARTITION: 0}
    ledger.forget()
    assert ledger.uncommitted() == {}


def effects(*ids: str, version: int) -> Effects:
    rows = [{"id": id, "body": version} for id in ids]
    values = [Outgoing("acme", "items", id, b"%d" % version) for id in ids]
    return Effects(rows={"items": rows}, outgoing=[*values, Outgoing("acme", "candidates", "c", b"{}")])


def written(found: Effects) -> tuple[dict[str, int], list[tuple[str, bytes | None]]]:
    rows = {row["id"]: row["body"] for row in found.rows.get("items", [])}
    return rows, [(each.key, each.value) for each in found.outgoing]


def test_only_the_newest_is_written_again_and_before_what_is_new() -> None:
    clock = FakeClock()
    writes = SecondWrites(15.0, clock)
    writes.begin()
    for version in (1, 2):
        writes.take("items", effects("a", "b", version=version))
    clock.advance(14.0)
    assert not writes.owes("items")
    clock.advance(1.0)
    assert writes.owes("items") and not writes.owes("patterns")
    later = effects("b", version=3)
    writes.take("items", later)
    assert written(later) == ({"a": 2, "b": 3}, [("a", b"2"), ("b", b"3"), ("c", b"{}")])
    assert not writes.owes("items")
    writes.begin()
    writes.take("items", effects("a", version=1))
    clock.advance(15.0)
    empty = Effects()
    writes.take("items", empty)
    assert written(empty) == ({"a": 1}, [("a", b"1")]), "an idle stage writes again with an empty batch"
    writes.take("items", again := Effects())
    assert written(again) == ({}, [])
    writes.take("items", effects("a", version=1))
    assert not writes.owes("items"), "after its time nothing is kept"
    alone = SecondWrites(0.0, clock)
    alone.begin()
    alone.take("items", effects("a", version=1))
    assert not alone.owes("items"), "a worker that is alone writes nothing twice"


@pytest.fixture
def lease(clock: FakeClock) -> Lease:
    return Lease(5.0, clock.monotonic)


def test_it_begins_with_the_first_answer_and_counts_from_the_question(lease: Lease, clock: FakeClock) -> None:
    assert not lease.holds
    asked = lease.now()
    clock.advance(3.0)
    lease.renew(asked)
    assert lease.holds
    clock.advance(2.0)
    with pytest.raises(LeaseLapsed, match="another worker"):
        lease.check()


def test_an_answer_that_comes_late_takes_nothing_away(lease: Lease, clock: FakeClock) -> None:
    early = lease.now()
    clock.advance(2.0)
    lease.renew(lease.now())
    lease.renew(early)
    clock.advance(4.0)
    lease.check()


@pytest.fixture
def delivery(world: World, metrics: Metrics, clock: FakeClock, ledger: Ledger, lease: Lease) -> Delivery:
    return Delivery(world, world, metrics, clock, ledger, budget_seconds=60.0, lease=lease)


async def test_an_effect_that_waits_is_checked_again(
    world: World, delivery: Delivery, lease: Lease, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep_through(*_: object) -> object:
        clock.advance(12.0)  # between the stage's work and its effects
        return world.effects

    lease.renew(lease.now())
    monkeypatch.setattr(world, "process", sleep_through)
    with pytest.raises(LeaseLapsed):
        await delivery.run(world, [record(0)])
    assert world.happened == []


async def test_where_only_the_broker_was_away_the_batch_goes_on(
    world: World, delivery: Delivery, lease: Lease, clock: FakeClock
) -> None:
    running = asyncio.create_task(delivery.run(world, [record(0)]))
    for _ in range(5):
        await asyncio.tasks.sleep(0)
    assert world.happened == []
    lease.renew(lease.now())
    await running
    assert world.happened[-1] == "allow"
