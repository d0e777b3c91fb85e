"""What a registry follower gives to its subscribers. With a broker: tests/sinks/test_adapter_publisher.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from fleetlore.adapters import registry_follower
from fleetlore.adapters.registry_follower import RegistryFollower, shared_follower
from fleetlore.kafka.follower import Follower


class Taker:
    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, bytes | None]] = []

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        await asyncio.sleep(0)
        self.taken.append((name, key, value))

    async def turn(self) -> None:
        pass


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> RegistryFollower:
    async def forever(self: Follower) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Follower, "run", forever)
    return RegistryFollower("nowhere:1", "acme")


WEIGHTS, POINTERS = "adapters.weights", "adapters.pointers"


async def test_who_joins_late_is_given_what_was_read(follower: RegistryFollower) -> None:
    early, late = Taker(), Taker()
    await follower.join(early)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        await follower._give(WEIGHTS, key, value)
    await follower.join(late)
    await follower._give(POINTERS, b"p", b"4")
    assert late.taken == [(WEIGHTS, b"a", b"3"), (POINTERS, b"p", b"4")]
    assert early.taken[-2:] == [(WEIGHTS, b"b", None), (POINTERS, b"p", b"4")]
    for subscriber in (early, late):
        await follower.leave(subscriber)


async def test_nothing_is_given_twice_after_a_reconnect(follower: RegistryFollower) -> None:
    subscriber = Taker()
    await follower.join(subscriber)
    for _ in range(2):
        await follower._give(WEIGHTS, b"a", b"1")
    assert subscriber.taken == [(WEIGHTS, b"a", b"1")]
    await follower.leave(subscriber)


async def test_old_versions_are_forgotten_and_revocations_never(
    follower: RegistryFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_follower, "KEPT_VERSIONS", 3)
    for number in range(9):
        await follower._give(WEIGHTS, b"%d" % number, b"w")
        await follower._give(POINTERS, b"revoked/version/%d" % number, b"r")
    assert list(follower._kept[WEIGHTS]) == [b"6", b"7", b"8"]
    assert len(follower._kept[POINTERS]) == 9


async def test_the_last_one_ends_it_and_the_next_one_begins_anew(follower: RegistryFollower) -> None:
    one, other = Taker(), Taker()
    await follower.join(one)
    await follower.join(other)
    await follower.leave(one)
    assert follower._task is not None and not follower._task.done()
    task = follower._task
    await follower.leave(other)
    assert follower._task is None and task.done()
    await follower.join(one)
    assert follower._task is not None
    await follower.leave(one)


class Producer:
    """Fails as often as it is told to, then keeps what it is sent."""

    failures = 0
    sent: list[tuple[bytes, bytes]]

    def __init__(self, bootstrap: str) -> None:
        pass

    async def start(self) -> None:
        if Producer.failures > 0:
            Producer.failures -= 1
            raise KafkaError("nobody there")

    async def send(self, name: str, value: bytes, key: bytes) -> asyncio.Future[None]:
        Producer.sent.append((key, value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def stop(self) -> None:
        pass


async def test_acks_that_could_not_be_sent_are_sent_later_in_order() -> None:
    Producer.failures, Producer.sent = 1, []
    make_producer: Any = Producer
    follower = RegistryFollower("nowhere:1", "acme", make_producer)
    for number in range(3):
        follower.ack("a", {"number": number})
    await follower._send_acks()
    assert Producer.sent == []
    follower.ack("a", {"number": 3})
    await follower._send_acks()
    assert Producer.sent == [(b"a", b'{"number":%d}' % number) for number in range(4)]
    assert not follower._acks


async def test_agents_of_one_loop_and_tenant_share_a_feed() -> None:
    assert shared_follower("nowhere:1", "acme") is shared_follower("nowhere:1", "acme")
    assert shared_follower("nowhere:1", "acme") is not shared_follower("nowhere:1", "other")
    here = shared_follower("nowhere:1", "acme")

    async def elsewhere() -> RegistryFollower:
        return shared_follower("nowhere:1", "acme")

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
