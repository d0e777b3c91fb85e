"""Whatever dies, nothing is lost and nothing doubled. Run with `make chaos-short` or `make chaos`.

`CHAOS_FORM` is `short` or `long`, `CHAOS_SEED` the seed of every random choice.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from benchmarks.replay import read_knowledge
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.wire.topics import TOPICS, topic
from streams.offline.operator_word import wait_drained
from tests.chaos import faults
from tests.chaos.accounting import Account, account
from tests.chaos.emitting import in_order
from tests.chaos.fleet import fleet_events
from tests.chaos.world import PARTITIONS, World
from tests.doubles.mock_cluster import MockCluster

SEED = int(os.environ.get("CHAOS_SEED", "1"))
DRAIN_SECONDS = 400.0
RELAY_SECONDS = 6.0  # between two kills of the relay, whose start takes two
KILL_SECONDS = 2.5  # between two kills, on the average: a worker that is started again gets something done
OF_SCHEMA = re.compile(r"schema \d+")
# A worker is awake for six of 19 s on the average, asleep for eight, and has five to write what it may.
AWAKE_SECONDS, SLEEP_SECONDS, LAST_SLEEP_SECONDS = 8.0, 19.0, 9.0

Faults = Callable[[World, Random, int, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Form:
    """How much of everything.

    Attributes:
        sessions: of the fleet in each scenario.
        seconds: how long it emits and faults happen, unless a scenario has its own duration.
        freeze_seconds: how long the broker hangs.
        rounds, kills, relay_kills, sleeps: how often.
    """

    sessions: int
    seconds: float
    freeze_seconds: float
    rounds: int
    kills: int
    relay_kills: int
    sleeps: int


FORM = {
    "short": Form(sessions=60, seconds=5.0, freeze_seconds=6.0, rounds=2, kills=4, relay_kills=2, sleeps=1),
    "long": Form(sessions=1_000, seconds=90.0, freeze_seconds=20.0, rounds=12, kills=60, relay_kills=20, sleeps=20),
}[os.environ.get("CHAOS_FORM", "short")]
IS_LONG = os.environ.get("CHAOS_FORM") == "long"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    faults: Faults
    rounds: int
    seconds: float = FORM.seconds  # of the faults
    emitting: float = FORM.seconds
    options: tuple[str, ...] = ()
    by_relay: bool = False

    @property
    def tenant(self) -> str:
        return self.name.replace(" ", "-").lower()


SCENARIOS = [
    Scenario("duplicates and disorder", faults.nothing, 0, options=("--disorder",)),
    Scenario("kill -9", faults.kills, FORM.kills, FORM.kills * KILL_SECONDS, FORM.kills * KILL_SECONDS),
    Scenario(
        "relay killed",
        faults.relay_killed,
        FORM.relay_kills,
        FORM.relay_kills * RELAY_SECONDS,
        FORM.relay_kills * RELAY_SECONDS,
        by_relay=True,
    ),
    # In the short form "workers come and go" alone ends workers in this way.
    *([Scenario("SIGTERM", faults.sigterm, FORM.rounds)] if IS_LONG else []),
    Scenario("workers come and go", faults.come_and_go, FORM.rounds),
    # The emission ends while it sleeps for the last time: nothing later mends what it writes when it wakes up.
    Scenario(
        "a worker sleeps", faults.sleep, FORM.sleeps, AWAKE_SECONDS, FORM.sleeps * SLEEP_SECONDS - LAST_SLEEP_SECONDS
    ),
    Scenario("broker hangs", faults.freeze, 1 + FORM.rounds // 6, FORM.freeze_seconds),
    Scenario("Milvus slow and away", faults.milvus, FORM.rounds),
    # A few rounds: the stack gives up a store that ends for the eleventh time.
    Scenario("disk of Milvus full", faults.disk_full, 1 + FORM.rounds // 6),
    Scenario("everything", faults.everything, FORM.kills, FORM.kills * KILL_SECONDS, FORM.kills * KILL_SECONDS),
]
CLUSTER = Scenario("cluster in trouble", faults.nothing, FORM.rounds)
UPGRADE = Scenario("upgrade killed", faults.nothing, FORM.rounds // 2)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3_600), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By tenant, the hash of what it comes to know when nothing happens."""
    tenants = [each.tenant for each in (*SCENARIOS, CLUSTER, UPGRADE)]
    async with World(tmp_path_factory.mktemp("calm"), tenants, trainer=False) as world:
        for tenant in tenants:
            async with in_order(world.settings.broker, tenant, Random()) as send:
                await send(fleet_events(tenant, SEED, FORM.sessions))
        for tenant in tenants:
            await wait_drained(world.settings, tenant, DRAIN_SECONDS)
        return {tenant: (await read_knowledge(world.store, tenant)).state_hash for tenant in tenants}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, undisturbed: dict[str, str]) -> AsyncIterator[World]:
    async with World(tmp_path_factory.mktemp("chaos"), [each.tenant for each in SCENARIOS]) as world:
        yield world


async def run(
    scenario: Scenario,
    world: World,
    settings: Settings,
    undisturbed: dict[str, str],
    happening: Callable[[Random], Awaitable[None]],
) -> Account:
    """One scenario: the fleet emits while the faults happen; then everything is worked in and counted."""
    tenant = scenario.tenant
    began, killed = time.monotonic(), world.kills.total()
    options = ("--relay", f"http://{world.relay}") if scenario.by_relay else scenario.options
    emission = asyncio.create_task(
        world.emit(settings.broker, tenant, SEED, FORM.sessions, scenario.emitting, *options)
    )
    try:
        await happening(Random(f"{SEED}/{scenario.name}"))
        acknowledged = await emission
    finally:
        emission.cancel()
    try:
        await wait_drained(settings, tenant, DRAIN_SECONDS)
    except StackError as error:
        error.add_note(await world.last_words())
        raise
    return await account(
        scenario.name,
        tenant,
        settings,
        world.store,
        fleet_events(tenant, SEED, FORM.sessions),
        acknowledged,
        world.kills.total() - killed,
        undisturbed[tenant],
        time.monotonic() - began,
    )


def judge(found: Account, accounts: list[Account]) -> None:
    accounts.append(found)
    assert (found.lost, found.doubled) == (0, 0), found
    assert found.equal, found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.tenant)
async def test_nothing_is_lost_or_doubled(
    scenario: Scenario, world: World, undisturbed: dict[str, str], accounts: list[Account]
) -> None:
    found = await run(
        scenario,
        world,
        world.settings,
        undisturbed,
        lambda rng: scenario.faults(world, rng, scenario.rounds, scenario.seconds),
    )
    judge(found, accounts)


async def test_a_cluster_in_trouble(world: World, undisturbed: dict[str, str], accounts: list[Account]) -> None:
    """Uses librdkafka's mock cluster of three brokers, and one worker."""
    tenant = CLUSTER.tenant
    with MockCluster(brokers=3) as cluster:
        topics = {topic(tenant, spec.name): spec.partitions or PARTITIONS for spec in TOPICS}
        for name, partitions in topics.items():
            cluster.create_topic(name, partitions, replication=3)
        settings = world.settings.with_(broker=cluster.address, tenants=(tenant,), group=tenant)
        async with world.lasting_worker("cluster-worker", settings):
            found = await run(
                CLUSTER,
                world,
                settings,
                undisturbed,
                lambda rng: faults.cluster_trouble(cluster, topics, tenant, rng, CLUSTER.rounds, CLUSTER.seconds),
            )
    judge(found, accounts)


async def test_an_upgrade_that_is_killed(tmp_path: Path, undisturbed: dict[str, str], accounts: list[Account]) -> None:
    """The folder of another schema, whose migration gets SIGKILL again and again before it may end."""
    tenant, rng, kills = UPGRADE.tenant, Random(f"{SEED}/{UPGRADE.name}"), 0
    began = time.monotonic()
    async with World(tmp_path, [tenant], trainer=False) as world:
        acknowledged = await world.emit(world.settings.broker, tenant, SEED, FORM.sessions, UPGRADE.emitting)
        await wait_drained(world.settings, tenant, DRAIN_SECONDS)
    for file in (tmp_path / "milvus" / "collections").glob("*/schema.json"):
        file.write_text(OF_SCHEMA.sub("schema 3", file.read_text()))
    for _ in range(UPGRADE.rounds):
        world = World(tmp_path, [tenant], trainer=False)
        killing = asyncio.create_task(faults.migration_killed(world, rng))
        with pytest.raises(StackError, match="nothing was deleted"):
            async with world:
                pass
        await killing
        kills += 1
    async with World(tmp_path, [tenant], trainer=False) as world:
        found = await account(
            UPGRADE.name,
            tenant,
            world.settings,
            world.store,
            fleet_events(tenant, SEED, FORM.sessions),
            acknowledged,
            kills,
            undisturbed[tenant],
            time.monotonic() - began,
        )
    judge(found, accounts)
