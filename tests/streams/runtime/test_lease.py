"""The lease: a worker that slept past its session writes nothing, and one whose broker was away writes on."""

import asyncio

import pytest

from fleetlore.errors import LeaseLapsed
from fleetlore.testing import FakeClock
from sinks.metrics import Metrics
from streams.runtime.delivery import Delivery, Lease, Ledger
from tests.streams.runtime.world import World, record


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


async def test_what_was_asleep_writes_nothing(
    world: World, delivery: Delivery, lease: Lease, clock: FakeClock, ledger: Ledger
) -> None:
    lease.renew(lease.now())
    clock.advance(12.0)  # SIGSTOP
    with pytest.raises(LeaseLapsed):
        await delivery.run(world, [record(0)])
    assert world.happened == [] and ledger.take() == {}


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
