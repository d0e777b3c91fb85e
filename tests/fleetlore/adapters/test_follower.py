"""The versions that a follower gives to its subscribers (with a broker: sinks/test_adapter_publisher.py)."""

import asyncio
from pathlib import Path

import pytest

from fleetlore.adapters.follower import AdapterFollower, shared_follower
from fleetlore.cluster import StackFolder
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import CallsManifest
from tests.doubles.adapter_log import AdapterLog
from tests.random_adapters import KEY, TRUSTED, record_of, version_of


class Taker:
    def __init__(self) -> None:
        self.turns = 0
        self.refused: list[str] = []

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        self.refused.append(refusal.reason)

    async def turn(self) -> None:
        await asyncio.sleep(0)
        self.turns += 1


@pytest.fixture
def log() -> AdapterLog:
    return AdapterLog()


@pytest.fixture
def follower(log: AdapterLog) -> AdapterFollower:
    return log.feed(TRUSTED)


def version(seed: int, epoch: int) -> tuple[bytes, bytes]:
    return record_of(KEY, *version_of(CallsManifest, seed, "acme"), epoch)


def weights(seed: int) -> bytes:
    return version_of(CallsManifest, seed, "acme")[0]


def running(follower: AdapterFollower) -> bytes:
    complete = follower.views["calls"].complete()
    return complete[0] if complete is not None else b""


async def test_all_share_what_was_verified_once(log: AdapterLog, follower: AdapterFollower) -> None:
    early, late = Taker(), Taker()
    await follower.join(early)
    await log.write(version(1, 1), version(2, 2))
    assert (early.turns, running(follower)) == (3, weights(2))
    await follower.join(late)
    assert late.turns == 1
    await log.reread(version(1, 1), version(2, 2))
    assert (early.turns, late.turns, early.refused, late.refused) == (5, 3, [], [])
    for subscriber in (early, late):
        await follower.leave(subscriber)


async def test_what_was_verified_outlives_the_last_agent(log: AdapterLog, follower: AdapterFollower) -> None:
    subscriber = Taker()
    await follower.join(subscriber)
    await log.write(version(1, 1), version(2, 2))
    await follower.leave(subscriber)
    await follower.join(subscriber)
    await log.catch_up(version(1, 1))
    assert (running(follower), subscriber.refused) == (weights(2), ["stale"])
    await follower.leave(subscriber)


async def test_the_last_one_ends_it_and_the_next_one_begins_anew(log: AdapterLog, follower: AdapterFollower) -> None:
    one, other = Taker(), Taker()
    await follower.join(one)
    await follower.join(other)
    await follower.leave(one)
    await asyncio.sleep(0)
    assert log.followed == 1
    await follower.leave(other)
    assert log.followed == 0
    await follower.join(one)
    await asyncio.sleep(0)
    assert log.followed == 1
    await follower.leave(one)
    assert log.followed == 0


def numbered(*numbers: int) -> list[tuple[bytes, bytes]]:
    return [(b"a", b'{"number":%d}' % number) for number in numbers]


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_acks_that_could_not_be_sent_are_sent_later_in_order(log: AdapterLog, follower: AdapterFollower) -> None:
    agent = Taker()
    await follower.join(agent)
    log.away = 1
    for number in range(3):
        follower.ack("a", {"number": number})
    await log.pause()
    await turns()
    assert log.acks == [] and log.away == 0
    follower.ack("a", {"number": 3})
    await follower.leave(agent)
    assert log.acks == numbered(0, 1, 2, 3)
    await follower.join(agent)
    await log.pause()
    await follower.leave(agent)
    assert log.acks == numbered(0, 1, 2, 3)  # once


@pytest.mark.parametrize("away", [0, 99])
async def test_the_last_agent_to_leave_says_what_it_did(log: AdapterLog, follower: AdapterFollower, away: int) -> None:
    log.away, agent = away, Taker()
    await follower.join(agent)
    follower.ack("a", {"number": 0})
    await log.pause()  # the ack is under way, or fails and waits
    await asyncio.sleep(0)
    follower.ack("a", {"number": 1})
    await follower.leave(agent)
    if away:  # who joins next says it
        assert log.acks == []
        log.away = 0
        await follower.join(agent)
        await follower.leave(agent)
    assert log.acks == numbered(0, 1)


async def test_an_agent_that_fails_ends_alone(log: AdapterLog, follower: AdapterFollower) -> None:
    class Failing(Taker):
        async def turn(self) -> None:
            raise RuntimeError("out of memory")

    failing, good = Failing(), Taker()
    await follower.join(failing)
    await follower.join(good)
    await log.write(version(1, epoch=1))
    assert good.turns == 2
    late = Failing()
    await follower.join(late)  # whose own task this is
    for agent in (failing, good, late):
        await follower.leave(agent)


async def test_agents_of_one_loop_and_tenant_share_a_feed(tmp_path: Path) -> None:
    assert shared_follower("nowhere:1", "acme", TRUSTED) is shared_follower("nowhere:1", "acme", TRUSTED)
    assert shared_follower("nowhere:1", "acme", TRUSTED) is not shared_follower("nowhere:1", "other", TRUSTED)
    stacks = [StackFolder(tmp_path) for _ in range(2)]
    assert shared_follower(stacks[0], "acme", TRUSTED) is shared_follower(stacks[1], "acme", TRUSTED)
    here = shared_follower("nowhere:1", "acme", TRUSTED)

    async def elsewhere() -> AdapterFollower:
        return shared_follower("nowhere:1", "acme", TRUSTED)

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
