"""A delivery between the doubles of `world.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from fleetlore.testing import FakeClock
from sinks.metrics import Metrics
from streams.runtime.delivery import Delivery, Ledger
from tests.streams.runtime.world import World


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
    fake.pauses = pauses
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
