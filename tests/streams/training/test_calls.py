"""The trainer of the call model on a real broker."""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.adapters.listing import AdapterListing, read_adapters
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import CALLS, CallsManifest
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.trajectory import Trajectory
from models.calls.training import train
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics
from streams.stage.operators import Erased
from streams.training.publication import Publication
from streams.training.trainer import CallsTrainer
from streams.training.window import CpuBudget, take
from streams.training.window import train as train_on
from tests.build import call, trajectory
from tests.streams.training.conftest import record, send

pytestmark = pytest.mark.timeout(600)
Publisher = AdapterPublisher[CallsManifest]


def sessions(first: int, count: int) -> list[Trajectory]:
    """Agents query tables; a table with a singular name does not exist."""
    made = []
    for number in range(first, first + count):
        random = Random(number)
        steps = []
        for _ in range(4):
            name = random.choice(("cars", "makers", "car", "maker"))
            error = None if name.endswith("s") else f"no such table: '{name}'"
            steps.append(call("sql", f"SELECT id FROM {name} LIMIT {random.randrange(9)}", "3 rows", error))
        made.append(trajectory(*steps, session=f"s{number}", agent=f"a{number % 7}", ended=float(number)))
    return made


def made(tenant: str, publisher: Publisher, clock: Clock | None = None, **options: Any) -> CallsTrainer:
    metrics, clock = Metrics("trainer"), clock or FakeClock()
    return CallsTrainer(Publication(tenant, publisher, metrics, clock), **options)


@asynccontextmanager
async def training(settings: Settings) -> AsyncIterator[None]:
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        trainer = made(settings.tenants[0], publisher, SystemClock())
        trainer.patience_seconds = 0.5
        task = asyncio.create_task(train_on(settings, SystemClock(), CpuBudget(8.0), [trainer]))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def listing_when(settings: Settings, learned: int) -> AdapterListing:
    """Wait until the version in service has learned this many sessions."""
    # A trainer has the lowest priority: a busy machine leaves it little.
    async with asyncio.timeout(250):
        while True:
            listing = (await read_adapters(settings.broker, settings.tenants[0])).of(CALLS)
            running = {pointer["version"] for pointer in listing.pointers}
            if any(each["version"] in running and each["sessions"] == learned for each in listing.manifests):
                return listing
            await asyncio.sleep(0.1)


@pytest.mark.long
async def test_closed_sessions_become_versions_that_a_restart_makes_again(settings: Settings) -> None:
    await send(settings, sessions(0, 60))
    async with training(settings):
        await listing_when(settings, 60)
        await send(settings, sessions(60, 40))
        listing = await listing_when(settings, 100)
    last = max(listing.manifests, key=lambda each: each["ordinal"])
    assert (last["agents"], last["calls"], last["tools"]) == (7, 400, ["sql"])
    assert last["parent"] in {each["version"] for each in listing.manifests} and last["version"] != last["parent"]
    assert last["version"] == version_of(sessions(0, 100))
    assert {(each["partition"], each["start"]) for each in last["data"]} == {(0, 0), (1, 0)}

    async with training(settings):  # it starts again, and comes to the same bytes: there is nothing to publish
        await asyncio.sleep(2)
        assert (await listing_when(settings, 100)).pointers == listing.pointers
        await send(settings, sessions(100, 20))
        assert len((await listing_when(settings, 120)).manifests) > len(listing.manifests)


def version_of(some: list[Trajectory]) -> str:
    return hashlib.sha256(train(some).weights).hexdigest()


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        yield publisher


async def in_service(tenant: str, publisher: Publisher) -> str | None:
    stable = (await publisher.published(tenant)).stable
    return stable and stable.record.version


async def trained(trainer: CallsTrainer, first: int, count: int) -> None:
    take([trainer], record(trainer.name, sessions(first, count), first))
    await trainer.learn()
    assert not trainer.due()


@pytest.mark.long
async def test_what_a_person_pins_stays_until_it_is_unpinned(tenant: str, publisher: Publisher) -> None:
    trainer = made(tenant, publisher)
    await trainer.publication.resume()
    for first in (0, 60):
        await trained(trainer, first, 60)
    one, two = sorted((await publisher.published(tenant)).versions.values(), key=lambda each: each.ordinal)
    assert two.parent == one.version
    await publisher.rollback(tenant, one.version, pinned=True)
    for first in (120, 180):
        await trained(trainer, first, 60)
    assert await in_service(tenant, publisher) == one.version
    await publisher.unpin(tenant)
    await trained(trainer, 240, 60)
    assert await in_service(tenant, publisher) == version_of(sessions(0, 300))


@pytest.mark.long
async def test_a_revoked_version_is_not_published_again(tenant: str, publisher: Publisher) -> None:
    await trained(made(tenant, publisher), 0, 60)
    (version,) = (await publisher.published(tenant)).versions
    assert await publisher.revoke(tenant, version) is None
    again = made(tenant, publisher)
    await again.publication.resume()
    await trained(again, 0, 60)
    assert not (await publisher.published(tenant)).versions
    await trained(again, 60, 60)
    assert list((await publisher.published(tenant)).versions) == [version_of(sessions(0, 120))]


async def test_a_log_that_lost_its_sessions_does_not_make_the_agents_forget(tenant: str, publisher: Publisher) -> None:
    await trained(made(tenant, publisher), 0, 200)
    (version,) = (await publisher.published(tenant)).versions
    again = made(tenant, publisher)
    await again.publication.resume()
    await trained(again, 140, 62)  # two of them are new: too few to measure the two versions by
    assert list((await publisher.published(tenant)).versions) == [version]


async def test_a_version_in_service_that_cannot_be_read_counts_as_none(tenant: str, publisher: Publisher) -> None:
    """Such as one of another release."""
    trainer = made(tenant, publisher)
    await trained(trainer, 0, 60)
    running = trainer.publication.running
    assert running is not None
    weights = b"of another release"
    version = hashlib.sha256(weights).hexdigest()
    unread = replace(running[1], version=version, size_bytes=len(weights), ordinal=2)
    await publisher.publish(weights, unread)
    await trainer.publication.resume()
    await trained(trainer, 60, 60)
    assert await in_service(tenant, publisher) == version_of(sessions(0, 120))


async def test_no_version_is_published_that_agents_refuse_for_its_size(tenant: str, publisher: Publisher) -> None:
    trainer = made(tenant, publisher)
    await trained(trainer, 0, 60)
    running = trainer.publication.running
    assert running is not None
    weights = bytes(CallsManifest.most_bytes + 1)
    with pytest.raises(ConfigError, match="agents refuse weights of 204801 bytes"):
        await publisher.publish(weights, replace(running[1], version=hashlib.sha256(weights).hexdigest()))


def flood(first: int, count: int) -> list[Trajectory]:
    """Sessions of one agent, one call each."""
    return [
        trajectory(
            call("ping", "x" if number % 2 else "y", "ok", None if number % 2 else "no y"),
            session=f"e{number}", agent="eve", ended=500.0 + number / 100,
        )
        for number in range(first, first + count)
    ]  # fmt: skip


async def learned(trainer: CallsTrainer, some: list[Trajectory], offset: int) -> None:
    take([trainer], record(trainer.name, some, offset))
    await trainer.learn()
    while trainer._is_behind():
        await trainer.learn()


async def test_records_of_one_agent_push_no_other_out_of_the_window(tenant: str, publisher: Publisher) -> None:
    trainer = made(tenant, publisher, sessions=300)
    await trained(trainer, 0, 120)
    for first in range(0, 1_500, 500):
        await learned(trainer, flood(first, 500), 1_000 + first)
    assert len([each for each in trainer._passes.sessions if each.agent != "eve"]) == 120
    assert trainer.publication.running is not None and trainer.publication.running[1].agents >= 7


async def test_a_version_of_one_agent_replaces_none_of_several(tenant: str, publisher: Publisher) -> None:
    """A restart finds its records alone."""
    await trained(made(tenant, publisher), 0, 60)
    (version,) = (await publisher.published(tenant)).versions
    again = made(tenant, publisher)
    await again.publication.resume()
    await learned(again, flood(0, 400), 1_000)
    assert again.publication.running is not None and len(again._passes.sessions) == 400
    assert list((await publisher.published(tenant)).versions) == [version]


async def test_it_waits_for_some_sessions_or_some_seconds(tenant: str, publisher: Publisher) -> None:
    clock = FakeClock()
    trainer = made(tenant, publisher, clock)
    assert not trainer.due()
    take([trainer], record(trainer.name, sessions(0, 19), 0))
    assert not trainer.due()
    take([trainer], record(trainer.name, sessions(0, 19), 1))  # the same ones again
    clock.advance(4.9)
    assert not trainer.due()
    clock.advance(0.2)
    assert trainer.due()
    other = made(tenant, publisher, clock)
    take([other], record(other.name, sessions(0, 20), 0))
    assert other.due()


@pytest.mark.long
async def test_two_trainers_of_a_tenant_name_no_half_of_what_it_learned(settings: Settings) -> None:
    """Each reads all sessions and commits nothing, so a version is of all of them, whichever trainer it is of."""
    await send(settings, sessions(0, 60))
    environ = {**os.environ, **settings.to_env()}
    command = sys.executable, "-m", "fleetlore.cli.main", "trainer"
    both = [await asyncio.create_subprocess_exec(*command, env=environ) for _ in range(2)]
    try:
        await listing_when(settings, 60)
        await send(settings, sessions(60, 40))
        await listing_when(settings, 100)
        both[0].kill()  # what it knew is lost with it, and is in no other place than the log
        await both[0].wait()
        await send(settings, sessions(100, 20))
        listing = await listing_when(settings, 120)
        both[1].terminate()
        async with asyncio.timeout(120):
            assert await both[1].wait() == 0, "it trained on, and ends in order"
    finally:
        for process in both:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert {each["version"] for each in listing.pointers} == {version_of(sessions(0, 120))}


@pytest.mark.long
async def test_a_version_without_an_erased_session_takes_the_place_of_the_revoked_one(
    tenant: str, publisher: Publisher
) -> None:
    erased, clock = Erased(), FakeClock()
    trainer = made(tenant, publisher, clock, erased=erased)
    await trained(trainer, 0, 60)
    (tainted,) = (await publisher.published(tenant)).versions
    gone, *stay = sessions(0, 60)
    erased.add_sessions(tenant, [stable_hash(gone.session)])
    assert trainer.due()
    await trainer.learn()  # it hears of the erasure before the version is revoked
    await publisher.revoke(tenant, tainted)
    clock.advance(6.0)
    assert trainer.due()
    await trainer.learn()
    take([trainer], record(trainer.name, [gone], 60))  # it comes again
    await trainer.learn()
    assert list((await publisher.published(tenant)).versions) == [version_of(stay)]
