"""The versions that the subscriber stages, applies and counts. With a broker: tests/sinks/test_adapter_publisher.py."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.follower import AdapterFollower
from fleetlore.adapters.slot import AdapterSlot
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.agent.adapters import CallModelSlot
from fleetlore.calls.document import Document
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, LanguageModelManifest, Revocation
from tests.doubles.weights_slot import FOREIGN, WeightsSlot
from tests.random_adapters import (
    KEY,
    TRUSTED,
    calls_manifest_for,
    manifest_for,
    random_call_model,
    record_of,
    version_of,
)

KINDS: dict[str, tuple[type[AdapterManifest], Callable[[], AdapterSlot[Any]]]] = {
    "calls": (CallsManifest, CallModelSlot),
    "llm": (LanguageModelManifest, WeightsSlot),
}
Subscriber = AdapterSubscriber[Any]


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def unfit(kind: str, seed: int) -> tuple[bytes, AdapterManifest]:
    """A version of another release, or over another base."""
    if kind == "calls":
        weights = msgspec.structs.replace(Document.from_bytes(random_call_model(seed)), schema=99).to_bytes()
        return weights, calls_manifest_for(weights, "acme")
    return version(kind, seed, base_sha256=FOREIGN)


REFUSED = {"calls": "structure", "llm": "foreign"}


def version(kind: str, seed: int, **changes: Any) -> tuple[bytes, AdapterManifest]:
    return version_of(KINDS[kind][0], seed, "acme", **changes)


@pytest.fixture
def busy() -> list[bool]:
    return [False]


class Feed(AdapterFollower):
    def __init__(self) -> None:
        super().__init__("nowhere:1", "acme", TRUSTED)
        self.told: list[tuple[str, dict[str, Any]]] = []

    async def deliver(self, weights: bytes, manifest: AdapterManifest, epoch: int, uri: str = "") -> None:
        await self.read(*record_of(KEY, weights, manifest, epoch, uri=uri))

    async def read(self, key: bytes, value: bytes) -> None:
        self._read(key, value)
        for subscriber in list(self._subscribers):
            await self._turn(subscriber)

    def follow(self, subscriber: Subscriber) -> Subscriber:
        self._subscribers.append(subscriber)
        return subscriber

    def ack(self, key: str, document: dict[str, Any]) -> None:
        self.told.append((key, document))


class Small(AdapterSlot[int]):
    """Loads weights of any size into a number."""

    kind = LanguageModelManifest

    def load(self, weights: bytes, manifest: AdapterManifest) -> int:
        return len(weights)


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def subscriber(kind: str, busy: list[bool], feed: Feed) -> Subscriber:
    holder = KINDS[kind][1]()
    return feed.follow(
        AdapterSubscriber("nowhere:1", "acme", "a1", TRUSTED, holder, idle=lambda: not busy[0], feed=feed)
    )


@pytest.mark.parametrize("kind", ["calls"])  # no two agents share the folder of a LoRA
async def test_what_one_agent_of_the_process_has_folded_others_take_without_a_thread(
    subscriber: Subscriber, feed: Feed, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, manifest = version(kind, 1)
    await feed.deliver(weights, manifest, 1)
    monkeypatch.setattr(asyncio, "to_thread", None)
    other = AdapterSubscriber("nowhere:1", "acme", "a2", TRUSTED, KINDS[kind][1](), feed=feed)
    await other.turn()
    assert other.version == manifest.version
    assert other.holder.value is subscriber.holder.value is not None


async def test_a_busy_agent_gets_the_newest_of_several_versions_between_two_actions(
    subscriber: Subscriber, feed: Feed, kind: str, busy: list[bool]
) -> None:
    busy[0] = True
    await feed.deliver(*version(kind, 1), 1)
    await feed.deliver(*version(kind, 2), 2)
    assert subscriber.version is None and subscriber.apply_pending()
    assert subscriber.version == version(kind, 2)[1].version and not subscriber.apply_pending()


@pytest.mark.parametrize(("seed", "uri"), [(1, ""), (3, "file:///elsewhere/x")], ids=["here", "on its way"])
async def test_a_waiting_version_that_the_channel_has_left_is_not_run(
    subscriber: Subscriber, feed: Feed, kind: str, busy: list[bool], seed: int, uri: str
) -> None:
    await feed.deliver(*version(kind, 1), 1)
    busy[0] = True
    await feed.deliver(*version(kind, 2), 2)
    await feed.deliver(*version(kind, seed), 3, uri=uri)
    assert not subscriber.apply_pending()
    assert subscriber.version == version(kind, 1)[1].version


async def test_a_refused_version_counts_and_the_old_one_stays(subscriber: Subscriber, feed: Feed, kind: str) -> None:
    await feed.deliver(*version(kind, 1), 1)
    for _ in range(3):  # it is tried once
        await feed.deliver(*unfit(kind, 2), 2)
    assert subscriber.version == version(kind, 1)[1].version
    assert subscriber.refused == {REFUSED[kind]: 1}
    assert feed.told[-1][1]["result"] == REFUSED[kind]
    weights, manifest = version(kind, 3)
    await feed.deliver(weights[:-9], manifest, 3)
    assert subscriber.refused == {REFUSED[kind]: 1, "truncated": 1}
    await feed.deliver(weights, manifest, 4)
    assert subscriber.version == manifest.version, "the next one is applied"


async def test_a_forged_record_is_told_once_beside_what_runs(subscriber: Subscriber, feed: Feed, kind: str) -> None:
    weights, manifest = version(kind, 1)
    key, _ = record_of(KEY, weights, manifest, 1)
    await feed.deliver(weights, manifest, 1)
    for _ in range(3):
        await feed.read(key, b"{}")
    assert sum(subscriber.refused.values()) == 3
    assert [key for key, _ in feed.told] == [f"{kind}/a1", f"{kind}/a1/refused"]
    assert (feed.told[0][1]["result"], feed.told[0][1]["version"]) == ("applied", manifest.version)
    _, told = feed.told[-1]
    assert (told["agent"], told["version"]) == ("a1", key.decode()) and told["result"] in subscriber.refused


async def test_an_unreachable_broker_does_not_break_the_agent(subscriber: Subscriber, feed: Feed) -> None:
    await subscriber.close()  # though it was never started
    await feed.leave(subscriber)
    await subscriber.start()
    assert not await subscriber.caught_up(0.3)
    await subscriber.close()


async def test_fetched_weights_are_let_go_once_they_are_loaded(feed: Feed, tmp_path: Path) -> None:
    blob_store, holder = BlobStore(f"file://{tmp_path}"), Small()
    subscriber: Subscriber = AdapterSubscriber(
        "nowhere:1", "acme", "a1", TRUSTED, holder, blob_store=blob_store, feed=feed
    )
    feed.follow(subscriber)
    weights = bytes(2**20)
    manifest = manifest_for(weights, "acme")
    await feed.deliver(b"", manifest, 1, blob_store.put("acme", manifest.version, weights))
    (fetch,) = [task for task in asyncio.all_tasks() if task.get_name() == "fleetlore-weights"]
    await fetch
    assert subscriber.version == manifest.version
    held = [part for value in vars(subscriber).values() for part in (value if isinstance(value, tuple) else (value,))]
    assert weights not in held


async def test_what_is_revoked_while_it_is_being_folded_is_never_run(
    kind: str, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download of external weights does not block newer records."""
    blob_store = BlobStore(f"file://{tmp_path}")
    subscriber: Subscriber = AdapterSubscriber(
        "nowhere:1", "acme", "a1", TRUSTED, KINDS[kind][1](), blob_store=blob_store, feed=feed
    )
    feed.follow(subscriber)
    await feed.deliver(*version(kind, 1), 1)
    weights, manifest = version(kind, 20_231)  # of no other test: one that is loaded already needs no thread
    folding, revoked = threading.Event(), threading.Event()
    load, run = subscriber.holder.load, []

    def slow(weights: bytes, manifest: AdapterManifest) -> object:
        folding.set()
        assert revoked.wait(120)
        return load(weights, manifest)

    monkeypatch.setattr(subscriber.holder, "load", slow)
    monkeypatch.setattr(subscriber.holder, "apply", lambda *loaded: run.append(loaded))
    await feed.deliver(b"", manifest, 2, blob_store.put("acme", manifest.version, weights))
    assert await asyncio.to_thread(folding.wait, 120)
    (fetch,) = [task for task in asyncio.all_tasks() if task.get_name() == "fleetlore-weights"]
    revocation = Revocation("acme", "version", manifest.version, "bad", 0.0)
    told = asyncio.create_task(feed.read(revocation.key, KEY.sign(revocation)))
    await asyncio.sleep(0)
    revoked.set()
    await told
    await fetch
    assert run == []
    assert subscriber.version == version(kind, 1)[1].version
