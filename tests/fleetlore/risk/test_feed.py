"""What the feed gives to whom, without a broker. With one: tests/sinks/test_adapters.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from fleetlore.kafka.follower import Follower
from fleetlore.risk import feed as adapter_feed
from fleetlore.risk.feed import RegistryFollower, feed_of


class Taker:
    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, bytes | None]] = []

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        await asyncio.sleep(0)
        self.taken.append((name, key, value))

    async def turn(self) -> None:
        pass


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> RegistryFollower:
    async def forever(self: Follower) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Follower, "run", forever)
    return RegistryFollower("nowhere:1", "acme")


WEIGHTS, POINTERS = "adapters.weights", "adapters.pointers"


async def test_who_joins_late_is_given_what_was_read(feed: RegistryFollower) -> None:
    early, late = Taker(), Taker()
    await feed.join(early)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        await feed._give(WEIGHTS, key, value)
    await feed.join(late)
    await feed._give(POINTERS, b"p", b"4")
    assert late.taken == [(WEIGHTS, b"a", b"3"), (POINTERS, b"p", b"4")]
    assert early.taken[-2:] == [(WEIGHTS, b"b", None), (POINTERS, b"p", b"4")]
    for follower in (early, late):
        await feed.leave(follower)


async def test_nothing_is_given_twice_after_a_reconnect(feed: RegistryFollower) -> None:
    follower = Taker()
    await feed.join(follower)
    for _ in range(2):
        await feed._give(WEIGHTS, b"a", b"1")
    assert follower.taken == [(WEIGHTS, b"a", b"1")]
    await feed.leave(follower)


async def test_old_versions_are_forgotten_and_revocations_never(
    feed: RegistryFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_feed, "KEPT_VERSIONS", 3)
    for number in range(9):
        await feed._give(WEIGHTS, b"%d" % number, b"w")
        await feed._give(POINTERS, b"revoked/version/%d" % number, b"r")
    assert list(feed._kept[WEIGHTS]) == [b"6", b"7", b"8"]
    assert len(feed._kept[POINTERS]) == 9


async def test_the_last_one_ends_it_and_the_next_one_begins_anew(feed: RegistryFollower) -> None:
    one, other = Taker(), Taker()
    await feed.join(one)
    await feed.join(other)
    await feed.leave(one)
    assert feed._task is not None and not feed._task.done()
    task = feed._task
    await feed.leave(other)
    assert feed._task is None and task.done()
    await feed.join(one)
    assert feed._task is not None
    await feed.leave(one)


class Producer:
    """Fails as often as it is told to, then keeps what it is sent."""

    failures = 0
    sent: list[tuple[bytes, bytes]]

    def __init__(self, bootstrap: str) -> None:
        pass

    async def start(self) -> None:
        if Producer.failures > 0:
            Producer.failures -= 1
            raise KafkaConnectionError("nobody there")

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
    feed = RegistryFollower("nowhere:1", "acme", make_producer)
    for number in range(3):
        feed.ack("a", {"number": number})
    await feed._send_acks()
    assert Producer.sent == []
    feed.ack("a", {"number": 3})
    await feed._send_acks()
    assert Producer.sent == [(b"a", b'{"number":%d}' % number) for number in range(4)]
    assert not feed._acks


async def test_agents_of_one_loop_and_tenant_share_a_feed() -> None:
    assert feed_of("nowhere:1", "acme") is feed_of("nowhere:1", "acme")
    assert feed_of("nowhere:1", "acme") is not feed_of("nowhere:1", "other")
    here = feed_of("nowhere:1", "acme")

    async def elsewhere() -> RegistryFollower:
        return feed_of("nowhere:1", "acme")

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
