"""Publisher and subscribers on a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.blob_store import MAX_INLINE_BYTES, BlobStore
from fleetlore.adapters.listing import read_adapters, read_to_end, read_weights
from fleetlore.adapters.signatures import SigningKey, create_signing_key, public_keys
from fleetlore.adapters.slot import AdapterSlot
from fleetlore.adapters.subscriber import REFETCH_SECONDS, AdapterSubscriber
from fleetlore.adapters.view import AdapterView
from fleetlore.agent.adapters import CallModelSlot
from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ChannelMoved, ConfigError
from fleetlore.kafka.client import connected, make_producer
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, LanguageModelManifest, Revocation, in_cohort
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from sinks.adapter_publisher import AdapterPublisher, LocalMirror
from tests.doubles.mock_cluster import MockCluster
from tests.doubles.weights_slot import WeightsSlot
from tests.random_adapters import manifest_for, random_weights, record_of, version_of

Kind = type[AdapterManifest]
Publisher = AdapterPublisher[AdapterManifest]
Subscriber = AdapterSubscriber[Any]
Follow = Callable[..., Awaitable[Subscriber]]
Version = Callable[..., tuple[bytes, AdapterManifest]]
InService = Callable[[], Awaitable[tuple[str, bool]]]
KINDS: dict[str, tuple[Kind, Callable[[], AdapterSlot[Any]]]] = {
    "calls": (CallsManifest, CallModelSlot),
    "llm": (LanguageModelManifest, WeightsSlot),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param][0]


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return create_signing_key(tmp_path / "key")


@pytest.fixture
async def publisher(
    kind: Kind, broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, key: SigningKey
) -> AsyncIterator[Publisher]:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks")
    store, storage = LocalMirror(tmp_path / "store"), BlobStore(f"file://{tmp_path}/shared")
    async with AdapterPublisher(kind, broker.address, key, store, blob_store=storage) as running:
        yield running


Overtake = Callable[[Callable[[], Awaitable[object]]], AbstractAsyncContextManager[Publisher]]


@pytest.fixture
def overtaken(kind: Kind, broker: EmbeddedBroker, key: SigningKey) -> Overtake:
    """A publisher of the same key that another one overtakes between what it reads and what it writes first."""

    def by(other: Callable[[], Awaitable[object]]) -> Publisher:
        def make(bootstrap: Any, **options: Any) -> AIOKafkaProducer:
            producer = make_producer(bootstrap, **options)
            send = producer.send_and_wait

            async def late(*record: Any, **more: Any) -> Any:
                producer.send_and_wait = send
                await other()
                return await send(*record, **more)

            producer.send_and_wait = late
            return producer

        return AdapterPublisher(kind, broker.address, key, make_producer=make)

    return by


@pytest.fixture
async def follow(kind: Kind, broker: EmbeddedBroker, tenant: str, tmp_path: Path) -> AsyncIterator[Follow]:
    trusted = public_keys(create_signing_key(tmp_path / "key").public_base64)
    running: list[Subscriber] = []

    async def start(agent: str = "a1", shared: str = "shared", clock: Clock | None = None) -> Subscriber:
        storage = BlobStore(f"file://{tmp_path}/{shared}")
        holder = KINDS[kind.name][1]()
        subscriber = AdapterSubscriber(broker.address, tenant, agent, trusted, holder, blob_store=storage, clock=clock)
        await subscriber.start()
        running.append(subscriber)
        assert await subscriber.caught_up(120)
        return subscriber

    yield start
    for subscriber in running:
        await subscriber.close()


@pytest.fixture
def version(kind: Kind, tenant: str) -> Version:
    def made(seed: int) -> tuple[bytes, AdapterManifest]:
        return version_of(kind, seed, tenant, ordinal=seed, created=float(seed))

    return made


@pytest.fixture
async def two(publisher: Publisher, version: Version) -> tuple[str, str]:
    """Two published versions, of which the second is in service."""
    for number in (1, 2):
        await publisher.publish(*version(number))
    return version(1)[1].version, version(2)[1].version


@pytest.fixture
def in_service(broker: EmbeddedBroker, tenant: str, kind: Kind, key: SigningKey) -> InService:
    """The version that is in service, and whether it is pinned, for who reads what compaction leaves."""

    async def read() -> tuple[str, bool]:
        view = AdapterView(kind, tenant, public_keys(key.public_base64), all_versions=True)
        for record in await compacted(broker, tenant):
            view.take(*record)
        assert view.stable is not None
        return view.stable.record.version, view.stable.record.pinned

    return read


async def until(check: Callable[[], bool], seconds: float = 40.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.02)


async def send(broker: EmbeddedBroker, tenant: str, *records: tuple[bytes, bytes]) -> None:
    """Write like a client that may write to the topic but has no key."""
    async with connected(make_producer(broker.address)) as producer:
        for key, value in records:
            await producer.send_and_wait(topic(tenant, "adapters"), value, key=key)


async def compacted(broker: EmbeddedBroker, tenant: str) -> list[tuple[bytes, bytes | None]]:
    """The records that compaction leaves: the last of each key."""
    kept: dict[bytes, bytes | None] = {}
    for record in await read_to_end(broker.address, [topic(tenant, "adapters")], 120):
        kept.pop(record.key or b"", None)
        kept[record.key or b""] = record.value
    return list(kept.items())


async def test_a_published_version_reaches_who_is_there_and_who_comes_late(
    publisher: Publisher, follow: Follow, tenant: str, version: Version
) -> None:
    early = await follow("early")
    weights, manifest = version(1)
    await publisher.publish(weights, manifest)
    await until(lambda: early.version == manifest.version)
    late = await follow("late")
    assert late.version == manifest.version
    assert early.refused == late.refused == {}


async def test_a_rollback_changes_the_bytes_that_agents_run(
    publisher: Publisher, follow: Follow, tenant: str, two: tuple[str, str]
) -> None:
    first, second = two
    agent = await follow()
    assert agent.version == second
    pointer = await publisher.rollback(tenant, first[:12])
    assert pointer.epoch == 3
    await until(lambda: agent.version == first)
    assert (await follow("late")).version == first


async def test_a_publication_decided_before_a_rollback_is_given_up(
    publisher: Publisher, follow: Follow, tenant: str, version: Version, two: tuple[str, str], in_service: InService
) -> None:
    """The version that lost is deleted, so that no reader that begins later refuses its record."""
    early = await follow("early")
    known = await publisher.published(tenant)
    await publisher.rollback(tenant, two[0], pinned=True)
    with pytest.raises(ChannelMoved):
        await publisher.publish(*version(3), known=known)
    await until(lambda: early.version == two[0])
    assert await in_service() == (two[0], True)
    assert version(3)[1].version not in (await publisher.published(tenant)).versions
    assert early.version == two[0] and early.refused == {}


async def test_a_decision_outlives_another_one_of_its_epoch_about_the_same_version(
    publisher: Publisher, overtaken: Overtake, tenant: str, two: tuple[str, str], in_service: InService
) -> None:
    """Compaction keeps the record that came second, which readers do not follow."""
    known = await publisher.published(tenant)
    async with overtaken(lambda: publisher.rollback(tenant, two[0], pinned=True)) as late:
        with pytest.raises(ChannelMoved):
            await late.move(known, two[0], "by the trainer")
    assert await in_service() == (two[0], True)


async def test_a_rollback_is_made_again_when_a_publication_comes_first(
    publisher: Publisher, overtaken: Overtake, follow: Follow, tenant: str, version: Version, two: tuple[str, str]
) -> None:
    agent = await follow()
    async with overtaken(lambda: publisher.publish(*version(3))) as late:
        pointer = await late.rollback(tenant, two[0])
    assert (pointer.version, pointer.epoch) == (two[0], 4)
    await until(lambda: agent.version == two[0])


@pytest.mark.slow  # the bound holds where no other test runs
async def test_what_a_person_decides_reaches_all_agents_soon(
    publisher: Publisher, follow: Follow, tenant: str, capsys: pytest.CaptureFixture[str], two: tuple[str, str]
) -> None:
    """The bar is a second. A busy machine is late in some of them."""
    first, second = two
    agents = [await follow(f"a{number}") for number in range(20)]
    decisions: list[tuple[str, Callable[[], Awaitable[object]], str | None]] = [
        ("rollback", lambda: publisher.rollback(tenant, first), first),
        ("pin", lambda: publisher.rollback(tenant, second, pinned=True), second),
        ("revoke", lambda: publisher.revoke(tenant, second), first),
        ("revoke the last", lambda: publisher.revoke(tenant, first), None),
    ]
    seconds = []
    for name, decide, running in decisions:
        await decide()
        began = time.monotonic()
        await until(lambda running=running: all(agent.version == running for agent in agents), 120)  # type: ignore[misc]
        seconds.append(time.monotonic() - began)
        with capsys.disabled():
            print(f" {name}: {seconds[-1]:.2f} s", end="")
    assert min(seconds) < 1.0


async def test_agents_of_one_process_share_a_connection(
    publisher: Publisher, follow: Follow, tenant: str, version: Version
) -> None:
    one, other = await follow("one"), await follow("other")
    assert [task.get_name() for task in asyncio.all_tasks()].count("fleetlore-adapters") == 1
    await one.close()
    await publisher.publish(*version(1))
    await until(lambda: other.version is not None)
    assert one.version is None
    await one.start()
    await until(lambda: one.version == other.version)


def large_version(tenant: str, seed: int, ordinal: int = 1) -> tuple[bytes, LanguageModelManifest]:
    weights = random_weights(seed, rank=300)
    assert len(weights) > MAX_INLINE_BYTES
    return weights, manifest_for(weights, tenant, ordinal=ordinal, created=float(ordinal))


@pytest.mark.parametrize("kind", ["llm"], indirect=True)
async def test_weights_too_large_for_a_record_come_from_the_shared_folder(
    publisher: Publisher, follow: Follow, tenant: str, tmp_path: Path, version: Version
) -> None:
    early, elsewhere = await follow("early"), await follow("elsewhere", shared="other")
    large, small = large_version(tenant, 1), version(2)
    await publisher.publish(*large)
    await until(lambda: early.version == large[1].version)
    assert (tmp_path / "shared" / tenant / f"{large[1].version}.safetensors").read_bytes() == large[0]
    await publisher.publish(*small)
    await until(lambda: early.version == elsewhere.version == small[1].version)
    await publisher.rollback(tenant, large[1].version)
    await until(lambda: early.version == large[1].version)
    assert (await publisher.published(tenant)).complete() == large
    assert early.refused == {}
    await until(lambda: elsewhere.refused["not_allowed"] > 0)
    assert elsewhere.version == small[1].version


@pytest.mark.parametrize("kind", ["llm"], indirect=True)
async def test_large_weights_that_are_missing_are_asked_for_again(
    publisher: Publisher, follow: Follow, tenant: str, tmp_path: Path, version: Version
) -> None:
    clock = FakeClock()
    small, large = version(1), large_version(tenant, 2, 2)
    await publisher.publish(*small)
    await publisher.publish(*large)
    file = tmp_path / "shared" / tenant / f"{large[1].version}.safetensors"
    file.rename(file.with_suffix(".away"))
    agent = await follow("late", clock=clock)
    await until(lambda: agent.refused["missing"] > 0)
    assert agent.version != large[1].version
    with pytest.raises(BrokerUnavailable, match="missing"):
        await publisher.published(tenant)
    file.write_bytes(large[0][:-1] + b"\x00")
    clock.advance(REFETCH_SECONDS)
    await until(lambda: agent.refused["tampered"] > 0)
    file.with_suffix(".away").rename(file)
    clock.advance(REFETCH_SECONDS)
    await until(lambda: agent.version == large[1].version)


async def test_a_rollback_to_no_or_any_version_is_refused(
    publisher: Publisher, tenant: str, two: tuple[str, str]
) -> None:
    for start in ("ffffffffffff", ""):
        with pytest.raises(ConfigError):
            await publisher.rollback(tenant, start)


async def test_a_pinned_channel_says_so_until_it_is_unpinned(
    publisher: Publisher, tenant: str, two: tuple[str, str]
) -> None:
    await publisher.rollback(tenant, two[0], pinned=True)
    for pinned in (True, False):
        stable = (await publisher.published(tenant)).stable
        assert stable is not None
        assert (stable.record.pinned, stable.record.version) == (pinned, two[0])
        await publisher.unpin(tenant)


async def test_a_revoked_version_is_left_by_who_runs_it_and_never_run_again(
    publisher: Publisher, follow: Follow, tenant: str, two: tuple[str, str]
) -> None:
    first, second = two
    agent = await follow()
    assert agent.version == second
    await publisher.revoke(tenant, second)
    await until(lambda: agent.version == first)
    with pytest.raises(ConfigError):
        await publisher.rollback(tenant, second)
    assert await publisher.revoke(tenant, first) is None
    await until(lambda: agent.version is None)
    assert (await follow("late")).version is None


async def test_two_that_revoke_at_once_leave_the_channel_on_a_version_that_may_run(
    publisher: Publisher, overtaken: Overtake, tenant: str, version: Version, two: tuple[str, str]
) -> None:
    """Another one revokes the version that would take its place, before it does."""
    first, second, third = *two, version(3)[1].version
    await publisher.publish(*version(3))
    async with overtaken(lambda: publisher.revoke(tenant, second)) as late:
        pointer = await late.revoke(tenant, third)
    assert pointer is not None and pointer.version == first
    registry = await publisher.published(tenant)
    assert registry.is_revoked(second)
    assert registry.stable is not None and registry.stable.record.version == first


async def test_a_decision_outlives_a_trainer_that_dies_before_it_sees_that_it_came_second(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, version: Version, key: SigningKey, two: tuple[str, str],
    in_service: InService,
) -> None:  # fmt: skip
    await publisher.rollback(tenant, two[0], pinned=True)
    await send(broker, tenant, record_of(key, *version(3), epoch=3))
    assert await in_service() == (two[0], True)


async def test_the_epoch_of_a_deleted_version_is_not_given_again(
    publisher: Publisher, follow: Follow, tenant: str, version: Version, two: tuple[str, str]
) -> None:
    """A host that has seen it would refuse the next version as an older one."""
    agent = await follow()
    for name in two:
        await publisher.revoke(tenant, name)
        await publisher.delete(await publisher.published(tenant), name)
    assert (await publisher.publish(*version(3))).epoch == 3
    await until(lambda: agent.version == version(3)[1].version)
    assert agent.refused == {}


async def test_a_canary_of_the_version_in_service_leaves_it_in_service(
    publisher: Publisher, version: Version, in_service: InService
) -> None:
    """A version has one record, and compaction keeps the last one."""
    await publisher.publish(*version(1))
    await publisher.publish(*version(1), canary_share=0.5)
    assert await in_service() == (version(1)[1].version, False)


async def test_a_revoked_key_takes_what_it_signed_with_it(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, tmp_path: Path, version: Version, kind: Kind
) -> None:
    old, new = create_signing_key(tmp_path / "key"), create_signing_key(tmp_path / "next")
    await publisher.publish(*version(1))
    both = AdapterSubscriber(
        broker.address, tenant, "a1", public_keys(new.public_base64, old.public_base64), KINDS[kind.name][1]()
    )
    await both.start()
    try:
        assert await both.caught_up(120)
        assert both.version == version(1)[1].version
        async with AdapterPublisher(kind, broker.address, new) as rotated:
            await rotated.revoke_key(tenant, old.key_id)
            await until(lambda: both.version is None)
            await publisher.publish(*version(2))
            await until(lambda: both.refused["unknown_key"] >= 1)
            await rotated.publish(*version(3))
            await until(lambda: both.version == version(3)[1].version)
    finally:
        await both.close()


async def test_a_new_key_goes_on_from_what_the_old_one_signed(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, tmp_path: Path, version: Version, kind: Kind
) -> None:
    old, new = create_signing_key(tmp_path / "key"), create_signing_key(tmp_path / "next")
    first, second = version(1), version(2)
    await publisher.publish(*first)
    agent = AdapterSubscriber(
        broker.address, tenant, "a1", public_keys(f"{new.public_base64}, {old.public_base64}"), KINDS[kind.name][1]()
    )
    await agent.start()
    try:
        async with AdapterPublisher(kind, broker.address, new, trusted=old.public_base64) as rotated:
            running = (await rotated.published(tenant)).complete()
            assert running is not None
            assert running[1].version == first[1].version
            assert (await rotated.publish(*second)).epoch == 2
            await until(lambda: agent.version == second[1].version)
            await rotated.revoke_key(tenant, old.key_id)
            await rotated.rollback(tenant, second[1].version, "still known")
        assert await agent.caught_up(120)
        assert agent.version == second[1].version
        assert agent.refused == {}
    finally:
        await agent.close()


async def test_agents_follow_a_new_key_that_does_not_know_the_old_one(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, tmp_path: Path, version: Version, kind: Kind,
    two: tuple[str, str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    old, new, stranger = (create_signing_key(tmp_path / name) for name in ("key", "next", "stranger"))
    trusted = public_keys(new.public_base64, old.public_base64)
    agent = AdapterSubscriber(broker.address, tenant, "a1", trusted, KINDS[kind.name][1]())
    await agent.start()
    try:
        assert await agent.caught_up(120)
        assert agent.version == two[1]
        await publisher.revoke(tenant, two[1])  # epoch 3 puts the first one back
        await send(broker, tenant, record_of(stranger, *version(4), epoch=2**62))
        async with AdapterPublisher(kind, broker.address, new) as rotated:
            assert (await rotated.publish(*version(3))).epoch == 4
            await until(lambda: agent.version == version(3)[1].version)
            await rotated.revoke_key(tenant, old.key_id)
        async with AdapterPublisher(kind, broker.address, new) as rotated:
            await rotated.rollback(tenant, version(3)[1].version)
        assert agent.refused == {"unknown_key": 1}
    finally:
        await agent.close()
    assert caplog.text.count(f"the key {old.key_id}, which FLEETLORE_PUBLIC_KEY does not name") == 1


async def test_a_key_cannot_revoke_itself(publisher: Publisher, tenant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="itself"):
        await publisher.revoke_key(tenant, create_signing_key(tmp_path / "key").key_id)


async def test_a_canary_reaches_its_share_and_a_newer_stable_pointer_ends_it(
    publisher: Publisher, follow: Follow, tenant: str, version: Version
) -> None:
    first, second = version(1)[1].version, version(2)[1].version
    # Three of each side, whatever the hash of the version is.
    possible = [f"agent-{number}" for number in range(100)]
    chosen = set([name for name in possible if in_cohort(name, 0.5, second)][:3])
    names = [*chosen, *[name for name in possible if not in_cohort(name, 0.5, second)][:3]]
    assert (len(chosen), len(names)) == (3, 6)
    await publisher.publish(*version(1))
    await publisher.publish(*version(2), canary_share=0.5)
    agents = {name: await follow(name) for name in names}
    assert {name for name, agent in agents.items() if agent.version == second} == chosen
    assert {agent.version for name, agent in agents.items() if name not in chosen} == {first}
    await publisher.rollback(tenant, first, "the trial was lost")
    await until(lambda: {agent.version for agent in agents.values()} == {first})


async def test_a_forged_a_cut_and_a_changed_version_are_refused_and_the_old_one_stays(
    publisher: Publisher,
    follow: Follow,
    broker: EmbeddedBroker,
    tenant: str,
    tmp_path: Path,
    version: Version,
    kind: Kind,
    key: SigningKey,
) -> None:
    await publisher.publish(*version(1))
    agent = await follow()
    stranger = create_signing_key(tmp_path / "other")
    weights, manifest = version(3)
    await send(
        broker,
        tenant,
        record_of(stranger, *version(2), epoch=2),
        *[record_of(key, each, manifest, epoch=2) for each in (weights[:-50], weights[:-1] + b"\x01")],
    )
    await until(lambda: agent.refused.total() >= 3)
    assert agent.refused == {"unknown_key": 1, "truncated": 1, "tampered": 1}
    assert agent.version == version(1)[1].version


async def test_agents_acknowledge_what_they_run(
    publisher: Publisher, follow: Follow, broker: EmbeddedBroker, tenant: str, version: Version
) -> None:
    _, manifest = version(1)
    await publisher.publish(*version(1))
    await follow("a1")
    await follow("a2")
    while len((listing := await read_adapters(broker.address, tenant)).acks) < 2:
        await asyncio.sleep(0.1)
    assert {ack["agent"] for ack in listing.acks} == {"a1", "a2"}
    assert {(ack["version"], ack["result"], ack["epoch"]) for ack in listing.acks} == {(manifest.version, "applied", 1)}
    assert all(0 < ack["load_seconds"] < 60 for ack in listing.acks)


async def test_a_listing_shows_versions_in_order_and_the_newest_pointer(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, version: Version, two: tuple[str, str]
) -> None:
    listing = await read_adapters(broker.address, tenant)
    assert [manifest["ordinal"] for manifest in listing.manifests] == [1, 2]
    assert [(p["channel"], p["epoch"]) for p in listing.pointers] == [("stable", 2)]
    # Weights that fit into a record are inline; agents download larger ones.
    expected = version(2)[0] if len(version(2)[0]) <= MAX_INLINE_BYTES else None
    assert await read_weights(broker.address, tenant, publisher.kind.name) == expected
    assert await read_weights(broker.address, tenant, "another") is None


async def test_a_listing_passes_over_what_is_no_document(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, version: Version
) -> None:
    """A writer without a key must not keep readers from the topic."""
    await publisher.publish(*version(1))
    key = f"{publisher.kind.name}/{version(1)[1].version}".encode()
    junk = (b'{"epoch": null}', b'{"epoch": "9"}', b"[1]", b"{}", b"no json", b'{"manifest": 1}', b"\n\n")
    await send(broker, tenant, *[(each, value) for each in (key, b"x/y") for value in junk])
    await send(broker, tenant, (b"x/y", b'{"created": "today"}'))
    ack = b'{"manifest": {"name": "calls", "version": "forged"}, "channel": "stable", "epoch": 9}'
    async with connected(make_producer(broker.address)) as producer:
        await producer.send_and_wait(topic(tenant, "adapters.acks"), ack, key=b"calls/forged")
    listing = await read_adapters(broker.address, tenant)
    assert [each["version"] for each in listing.pointers] == [version(1)[1].version] and len(listing.manifests) == 1


async def test_a_listing_of_no_topics_is_empty_and_one_without_a_broker_says_so(
    broker: EmbeddedBroker, tenant: str
) -> None:
    assert (await read_adapters(broker.address, tenant)).manifests == ()
    with pytest.raises(BrokerUnavailable):
        await read_adapters("127.0.0.1:1", "default", timeout_seconds=1.0)


async def test_a_broker_that_lost_everything_is_filled_again_with_all_but_what_is_revoked(
    own_broker: EmbeddedBroker, make_topics: Any, tenant: str, tmp_path: Path, version: Version, kind: Kind
) -> None:
    own_broker.start()
    await make_topics(own_broker.address, tenant, *ADAPTER_TOPICS)
    create_signing_key(tmp_path / "key")
    settings = Settings(
        broker=own_broker.address, signing_key=str(tmp_path / "key"), adapters_dir=str(tmp_path / "store")
    )
    first, second = version(1), version(2)
    async with AdapterPublisher.from_settings(kind, settings) as publisher:
        await publisher.publish(*first)
        await publisher.publish(*second)
        await publisher.rollback(tenant, first[1].version)
        await publisher.revoke(tenant, second[1].version)
    own_broker.kill()
    own_broker.start()
    await make_topics(own_broker.address, tenant, *ADAPTER_TOPICS)
    async with AdapterPublisher.from_settings(kind, settings) as publisher:
        assert await publisher.restore(tenant) == 1
        assert await publisher.restore(tenant) == 0
    listing = await read_adapters(own_broker.address, tenant)
    assert [(p["version"], p["epoch"]) for p in listing.pointers] == [(first[1].version, 3)]
    assert [each["version"] for each in listing.manifests] == [first[1].version], "a revoked version is not sent again"


async def test_what_a_retired_key_signed_stays_in_the_store(
    kind: Kind, broker: EmbeddedBroker, make_topics: Any, tenant: str, tmp_path: Path, version: Version
) -> None:
    """The trainer's folder outlives its keys: `restore` failed on the first document of one that was taken back."""
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, partitions=1)
    store = LocalMirror(tmp_path / "store")
    old, new = create_signing_key(tmp_path / "old"), create_signing_key(tmp_path / "new")
    weights, manifest = version(1)
    store.write(f"{tenant}/{kind.name}/{manifest.version}.record", record_of(old, weights, manifest, 1)[1])
    revocation = Revocation(tenant, "version", "0" * 64, "bad", 0.0)
    store.write(f"{tenant}/version-{revocation.what}.revoked", old.sign(revocation))
    async with AdapterPublisher(kind, broker.address, new, store) as publisher:
        assert await publisher.restore(tenant) == 0
    async with AdapterPublisher(kind, broker.address, new, store, trusted=old.public_base64) as publisher:
        assert await publisher.restore(tenant) == 1
    listing = await read_adapters(broker.address, tenant)
    assert [each["version"] for each in listing.pointers] == [manifest.version]
    assert [each["what"] for each in listing.revocations] == ["0" * 64]


def test_a_mirror_holds_the_last_record_of_a_version_until_it_is_dropped(tmp_path: Path) -> None:
    store = LocalMirror(tmp_path / "store")
    assert list(store.records("acme", "calls")) == []
    for value in (b"1", b"2"):
        store.write("acme/calls/v1.record", value)
    assert list(store.records("acme", "calls")) == [(b"calls/v1", b"2")]
    assert list(store.records("acme", "llm")) == []
    for _ in range(2):
        store.drop("acme", "calls", "v1")
    assert list((tmp_path / "store" / "acme" / "calls").iterdir()) == []


async def test_a_stale_store_never_moves_the_channel_back(
    publisher: Publisher, broker: EmbeddedBroker, tenant: str, tmp_path: Path, version: Version, kind: Kind
) -> None:
    await publisher.publish(*version(1))
    elsewhere = AdapterPublisher(kind, broker.address, create_signing_key(tmp_path / "key"))
    async with elsewhere:
        await elsewhere.publish(*version(2))
    await publisher.restore(tenant)
    listing = await read_adapters(broker.address, tenant)
    assert [p["version"] for p in listing.pointers] == [version(2)[1].version]


async def test_old_versions_are_forgotten(
    kind: Kind,
    broker: EmbeddedBroker,
    publisher: Publisher,
    follow: Follow,
    tenant: str,
    tmp_path: Path,
    version: Version,
) -> None:
    store = LocalMirror(tmp_path / "store")
    key = create_signing_key(tmp_path / "key")
    async with AdapterPublisher(kind, broker.address, key, store, kept_versions=2) as two:
        for number in range(1, 5):
            await two.publish(*version(number))
        assert len(list(store.records(tenant, kind.name))) == 2
        assert len((await two.published(tenant)).versions) == 2
    assert (await follow()).version == version(4)[1].version


async def test_no_broker_and_no_key_are_errors_with_a_name(tmp_path: Path, kind: Kind) -> None:
    with pytest.raises(BrokerUnavailable):
        async with AdapterPublisher(kind, "127.0.0.1:1", create_signing_key(tmp_path / "key")):
            pass
    with pytest.raises(ConfigError, match="SIGNING_KEY"):
        AdapterPublisher.from_settings(kind, Settings())


async def test_a_broker_that_goes_away_is_not_waited_for_without_end(tmp_path: Path, kind: Kind) -> None:
    key = create_signing_key(tmp_path / "key")
    with MockCluster(1) as cluster:
        for name in ADAPTER_TOPICS:
            cluster.create_topic(topic("acme", name), 1)
        async with AdapterPublisher(kind, cluster.address, key, timeout_seconds=1.0) as publisher:
            await publisher.revoke_key("acme", "0" * 16)
            cluster.down(1)
            async with asyncio.timeout(120):
                with pytest.raises(BrokerUnavailable, match="not acknowledged"):
                    await publisher.revoke_key("acme", "0" * 16)
