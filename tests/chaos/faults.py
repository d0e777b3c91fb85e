"""Define the scenarios: each injects its faults for a while, and leaves the stack running."""

import asyncio
import signal
from collections.abc import Mapping
from random import Random

from tests.chaos.world import WORKERS, World
from tests.doubles.mock_cluster import Failure, MockCluster, Request

WORKER_NAMES = [f"worker-{number}" for number in range(WORKERS)]
VICTIMS = [*WORKER_NAMES, *WORKER_NAMES, "trainer", "emitter"]

FAILURES = {
    Request.PRODUCE: (Failure.NOT_ENOUGH_REPLICAS, Failure.NOT_LEADER, Failure.REQUEST_TIMED_OUT),
    Request.FETCH: (Failure.NOT_LEADER, Failure.REQUEST_TIMED_OUT),
    Request.OFFSET_COMMIT: (Failure.NOT_COORDINATOR, Failure.COORDINATOR_LOADING),
    Request.HEARTBEAT: (Failure.NOT_COORDINATOR, Failure.COORDINATOR_NOT_AVAILABLE),
}


async def nothing(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """This scenario injects no fault: the events of the fleet are hard enough."""


async def kills(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """`kill -9` of a worker, the trainer or the emitter."""
    for number in range(rounds):
        await asyncio.sleep(rng.uniform(0.5, 1.5) * seconds / rounds)
        # Everyone once before anyone twice, so that also a short run kills each kind.
        victims = sorted(set(VICTIMS)) if number < len(set(VICTIMS)) else VICTIMS
        world.kill(victims[number % len(victims)] if number < len(victims) else rng.choice(VICTIMS))


async def relay_killed(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """`kill -9` of the relay that the fleet speaks to, under load; it is started again."""
    while world.kills["relay"] < rounds:
        await asyncio.sleep(rng.uniform(0.8, 1.2) * seconds / rounds)
        world.kill("relay")


async def sigterm(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """SIGTERM of a worker under load; it comes back, and then it is another's turn."""
    for _ in range(rounds):
        victim = rng.choice(WORKER_NAMES)
        await asyncio.sleep(rng.uniform(0.2, 0.8) * seconds / rounds)
        world.signal(victim, signal.SIGTERM)
        await asyncio.sleep(1.0)
        await world.ready(victim)


async def come_and_go(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """A third worker that joins and leaves again: a rebalance each time, with batches under way."""
    for number in range(rounds):
        name = f"visitor-{number}"
        visitor = await world.extra_worker(name)
        await world.ready(name)
        await asyncio.sleep(rng.uniform(0.2, 0.8) * seconds / rounds)
        await visitor.stop()


async def freeze(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """SIGSTOP of the broker: connections stay open and nothing answers; workers lose their group meanwhile."""
    await asyncio.sleep(rng.uniform(0.1, 0.3) * seconds)
    for _ in range(rounds):
        world.signal("broker", signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            world.signal("broker", signal.SIGCONT)
        await asyncio.sleep(rng.uniform(2.0, 4.0))


async def sleep(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """SIGSTOP of a worker, with what it holds, for twice its session timeout: another one takes over meanwhile."""
    for number in range(rounds):
        await asyncio.sleep(rng.uniform(0.6, 0.9) * seconds)
        victim = WORKER_NAMES[number % len(WORKER_NAMES)]
        world.signal(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * world.settings.session_timeout_seconds)
        finally:
            world.signal(victim, signal.SIGCONT)
        # It writes what it holds within seconds, if it may.
        await asyncio.sleep(5.0)


async def milvus(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """Milvus is slow, breaks its connections, is away."""
    try:
        for _ in range(rounds):
            world.proxy.delay_seconds = rng.uniform(0.05, 0.5)
            await asyncio.sleep(rng.uniform(0.3, 0.7) * seconds / rounds)
            await world.proxy.cut()
            world.proxy.delay_seconds = 0.0
            await asyncio.sleep(rng.uniform(0.1, 0.3) * seconds / rounds)
            await world.proxy.take_away()
            await asyncio.sleep(rng.uniform(0.1, 0.3) * seconds / rounds)
            world.proxy.bring_back()
    finally:
        world.proxy.delay_seconds = 0.0
        world.proxy.bring_back()


async def disk_full(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """No more fits on the disk of Milvus: its server ends at the first write that fails, and finds room when it is
    started again.
    """
    for _ in range(rounds):
        await asyncio.sleep(rng.uniform(0.2, 0.8) * seconds / rounds)
        await world.fill_disk("milvus")


async def migration_killed(world: World, rng: Random) -> None:
    """SIGKILL of what makes the lore of another release again, in its first second."""
    while not world.signal("migrate", signal.SIGCONT):  # nothing to one that runs
        await asyncio.sleep(0.02)
    await asyncio.sleep(rng.uniform(0.0, 1.0))
    world.signal("migrate", signal.SIGKILL)


async def everything(world: World, rng: Random, rounds: int, seconds: float) -> None:
    """All faults at once except a frozen broker, which may hang only while no member leaves its group."""
    await asyncio.gather(
        kills(world, rng, rounds, seconds),
        milvus(world, rng, max(1, rounds // 4), seconds),
        come_and_go(world, rng, max(1, rounds // 8), seconds / 2),
    )


async def cluster_trouble(
    cluster: MockCluster, topics: Mapping[str, int], group: str, rng: Random, rounds: int, seconds: float
) -> None:
    """Brokers go down, leaders and the coordinator move, requests fail."""
    brokers = (1, 2, 3)
    for _ in range(rounds):
        down = rng.choice(brokers)
        others = [broker for broker in brokers if broker != down]
        for request, failures in FAILURES.items():
            cluster.fail_next(request, rng.choices(failures, k=rng.randint(1, 4)))
        for topic, partitions in topics.items():
            for partition in range(partitions):
                cluster.move_leader(topic, partition, rng.choice(others))
        cluster.move_coordinator(group, rng.choice(others))
        cluster.down(down)
        await asyncio.sleep(seconds / rounds / 2)
        cluster.up(down)
        await asyncio.sleep(seconds / rounds / 2)
