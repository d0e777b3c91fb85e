"""What a registry follower gives to its subscribers. With a broker: tests/sinks/test_adapter_publisher.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.random_adapters import pointer_to, version_of
from fleetlore.adapters.registry_follower import RegistryFollower, shared_follower
from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.errors import AdapterRefused
from fleetlore.kafka.follower import Follower
from fleetlore.wire.adapter_manifest import CallsManifest
from tests.doubles.connections import ONE_SERVER


class Taker:
    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, bytes | None]] = []
        self.refused: list[str] = []

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        await asyncio.sleep(0)
        self.taken.append((name, key, value))

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        self.refused.append(refusal.reason)

    async def turn(self) -> None:
        pass


KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUSTED = public_keys(KEY.public_base64)
WEIGHTS, MANIFESTS, POINTERS = "adapters.weights", "adapters.manifests", "adapters.pointers"


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> RegistryFollower:
    async def forever(self: Follower) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Follower, "run", forever)
    return RegistryFollower("nowhere:1", "acme", TRUSTED)


def version(seed: int, epoch: int) -> list[tuple[str, bytes, bytes]]:
    """Manifest, weights and pointer."""
    weights, manifest = version_of(CallsManifest, seed, "acme")
    pointer = pointer_to(manifest, epoch)
    return [
        (MANIFESTS, manifest.key, KEY.sign(manifest)),
        (WEIGHTS, manifest.version.encode(), weights),
        (POINTERS, pointer.key, KEY.sign(pointer)),
    ]


async def test_who_joins_late_is_given_what_was_verified(follower: RegistryFollower) -> None:
    early, late = Taker(), Taker()
    await follower.join(early)
    one, two = version(1, 1), version(2, 2)
    for record in (*one, *two):
        await follower._give(*record)
    await follower.join(late)
    assert early.taken == [*one, *two]
    # One channel has one pointer; a revocation or pointer comes before what it speaks of.
    assert late.taken == [two[2], one[0], two[0], one[1], two[1]]
    for subscriber in (early, late):
        await follower.leave(subscriber)


async def test_nothing_is_given_twice_after_a_reconnect(follower: RegistryFollower) -> None:
    subscriber = Taker()
    await follower.join(subscriber)
    for record in version(1, 1) * 2:
        await follower._give(*record)
    assert subscriber.taken == version(1, 1)
    await follower.leave(subscriber)


async def test_weights_that_come_before_their_manifest_are_read_again(follower: RegistryFollower) -> None:
    subscriber = Taker()
    await follower.join(subscriber)
    manifest, weights, _ = version(1, 1)
    await follower._give(*weights)
    assert subscriber.taken == [] and not follower._follower._rewound
    await follower._give(*manifest)
    assert follower._follower._rewound == {"fleetlore.acme.adapters.weights"}
    await follower._give(*weights)
    assert subscriber.taken == [manifest, weights]
    await follower.leave(subscriber)


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

    client = ONE_SERVER

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
    follower = RegistryFollower("nowhere:1", "acme", TRUSTED, make_producer=make_producer)
    for number in range(3):
        follower.ack("a", {"number": number})
    await follower._send_acks()
    assert Producer.sent == []
    follower.ack("a", {"number": 3})
    await follower._send_acks()
    assert Producer.sent == [(b"a", b'{"number":%d}' % number) for number in range(4)]
    assert not follower._acks


@pytest.mark.parametrize("failures", [0, 99])
async def test_the_last_agent_that_leaves_says_what_it_did(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    async def forever(self: Follower) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Follower, "run", forever)
    Producer.failures, Producer.sent = failures, []
    make_producer: Any = Producer
    follower, agent = RegistryFollower("nowhere:1", "acme", TRUSTED, make_producer=make_producer), Taker()
    await follower.join(agent)
    follower.ack("a", {"number": 0})
    follower._sending = asyncio.create_task(follower._send_acks())  # which is under way, or fails and waits
    await asyncio.sleep(0)
    follower.ack("a", {"number": 1})
    await follower.leave(agent)
    if failures:
        assert [value for _, value in follower._acks] == [b'{"number":0}', b'{"number":1}']  # for who joins next
    else:
        assert Producer.sent == [(b"a", b'{"number":%d}' % number) for number in range(2)]


async def test_an_agent_that_fails_ends_alone(follower: RegistryFollower) -> None:
    class Failing(Taker):
        async def take(self, name: str, key: bytes, value: bytes | None) -> None:
            raise RuntimeError("out of memory")

    failing, good = Failing(), Taker()
    await follower.join(failing)
    await follower.join(good)
    for record in version(1, epoch=1):
        await follower._give(*record)
    assert len(good.taken) == 3
    late = Failing()
    await follower.join(late)  # which is given all of it at once, and whose own task this is
    for agent in (failing, good, late):
        await follower.leave(agent)


async def test_agents_of_one_loop_and_tenant_share_a_feed() -> None:
    assert shared_follower("nowhere:1", "acme", TRUSTED) is shared_follower("nowhere:1", "acme", TRUSTED)
    assert shared_follower("nowhere:1", "acme", TRUSTED) is not shared_follower("nowhere:1", "other", TRUSTED)
    here = shared_follower("nowhere:1", "acme", TRUSTED)

    async def elsewhere() -> RegistryFollower:
        return shared_follower("nowhere:1", "acme", TRUSTED)

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
