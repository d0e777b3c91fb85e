"""Publishers of adapters, and the versions that agents run: on a log in memory, and at the end on a real broker."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters import listing
from fleetlore.adapters.blob_store import MAX_INLINE_BYTES, BlobStore
from fleetlore.adapters.listing import read_adapters, read_weights
from fleetlore.adapters.signatures import PublicKeys, SigningKey, create_signing_key, public_keys
from fleetlore.adapters.slot import AdapterSlot
from fleetlore.adapters.subscriber import REFETCH_SECONDS, AdapterSubscriber
from fleetlore.adapters.view import AdapterView
from fleetlore.agent.adapters import CallModelSlot
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ChannelMoved, ConfigError
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, LanguageModelManifest, Revocation, in_cohort
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from sinks import adapter_publisher
from sinks.adapter_publisher import AdapterPublisher, LocalMirror
from sinks.producer import Outgoing
from tests.doubles.adapter_log import AdapterLog
from tests.doubles.memory_log import InMemoryLog
from tests.doubles.mock_cluster import MockCluster
from tests.doubles.weights_slot import WeightsSlot
from tests.random_adapters import KEY, OTHER, TRUSTED, manifest_for, random_weights, record_of, version_of
from tests.waiting import until

Kind = type[AdapterManifest]
SLOTS: dict[Kind, Callable[[], AdapterSlot[Any]]] = {CallsManifest: CallModelSlot, LanguageModelManifest: WeightsSlot}
TOPIC = topic("acme", "adapters")
BOTH = public_keys(OTHER.public_base64, KEY.public_base64)


class Channel:
    """The adapter topics of the tenant `acme`. `overtake`: another's decision, made before the next record is sent."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.log = InMemoryLog()
        self.overtake: Callable[[], Awaitable[object]] | None = None

    def publisher(
        self, key: SigningKey = KEY, store: LocalMirror | None = None, **options: Any
    ) -> AdapterPublisher[AdapterManifest]:
        return AdapterPublisher(self.kind, "nowhere:1", key, store, make_producer=lambda *_, **__: self, **options)

    async def start(self) -> None:
        """A channel is its own producer."""

    async def stop(self) -> None:
        pass

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            await overtake()
        for each in values:
            self.log.append(topic(each.tenant, each.topic), each.value, key=each.key.encode())

    async def read(self, _: object, names: list[str], __: float) -> list[Any]:
        return [record for name in names for record in self.log.read_all(name)]

    def version(self, seed: int) -> tuple[bytes, AdapterManifest]:
        return version_of(self.kind, seed, "acme", ordinal=seed, created=float(seed))

    def agent(self, name: str = "a1", trusted: PublicKeys = TRUSTED) -> tuple[str | None, Counter[str]]:
        """The version that an agent runs, and what it refused."""
        view, refused = AdapterView(self.kind, "acme", trusted), Counter[str]()
        for record in self.log.read_all(TOPIC):
            try:
                view.take(record.key or b"", record.value)
            except AdapterRefused as refusal:
                refused[refusal.reason] += 1
        release = view.followed_by(name)
        return None if release is None or view.revoked(release) else release.record.version, refused

    def in_service(self) -> tuple[str, bool]:
        """The version in service and whether it is pinned, for who reads what compaction leaves."""
        self.log.compact(TOPIC)
        view = AdapterView(self.kind, "acme", TRUSTED, all_versions=True)
        for record in self.log.read_all(TOPIC):
            view.take(record.key or b"", record.value)
        assert view.stable is not None
        return view.stable.record.version, view.stable.record.pinned


Publisher = AdapterPublisher[AdapterManifest]


@pytest.fixture(params=sorted(SLOTS, key=lambda kind: kind.name), ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def channel(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Channel:
    made = Channel(kind)
    for module in (adapter_publisher, listing):
        monkeypatch.setattr(module, "read_to_end", made.read)
    return made


@pytest.fixture
async def publisher(channel: Channel, tmp_path: Path) -> AsyncIterator[Publisher]:
    blob_store = BlobStore(f"file://{tmp_path}/shared")
    async with channel.publisher(store=LocalMirror(tmp_path / "store"), blob_store=blob_store) as running:
        yield running


@pytest.fixture
async def two(publisher: Publisher, channel: Channel) -> tuple[str, str]:
    """Two published versions, of which the second is in service."""
    for number in (1, 2):
        await publisher.publish(*channel.version(number))
    assert channel.agent() == (channel.version(2)[1].version, {})
    return channel.version(1)[1].version, channel.version(2)[1].version


async def test_a_publication_decided_before_a_rollback_is_given_up(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    """The version that lost is deleted, so that no reader that begins later refuses its record."""
    known = await publisher.published("acme")
    await publisher.rollback("acme", two[0], pinned=True)
    with pytest.raises(ChannelMoved):
        await publisher.publish(*channel.version(3), known=known)
    assert channel.agent() == (two[0], {})
    assert channel.in_service() == (two[0], True)
    assert channel.version(3)[1].version not in (await publisher.published("acme")).versions


async def test_a_decision_outlives_another_one_of_its_epoch_about_the_same_version(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    """Compaction keeps the record that came second, which readers do not follow."""
    known = await publisher.published("acme")
    channel.overtake = lambda: publisher.rollback("acme", two[0], pinned=True)
    with pytest.raises(ChannelMoved):
        await publisher.move(known, two[0], "by the trainer")
    assert channel.in_service() == (two[0], True)


async def test_a_rollback_is_made_again_when_a_publication_comes_first(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    channel.overtake = lambda: publisher.publish(*channel.version(3))
    pointer = await publisher.rollback("acme", two[0])
    assert (pointer.version, pointer.epoch) == (two[0], 4)
    assert channel.agent() == (two[0], {})


@pytest.mark.parametrize("start", ["ffffffffffff", ""])
async def test_a_rollback_to_no_or_any_version_is_refused(
    publisher: Publisher, two: tuple[str, str], start: str
) -> None:
    with pytest.raises(ConfigError, match="published versions begin with"):
        await publisher.rollback("acme", start)


async def test_a_revoked_version_is_left_by_who_runs_it_and_never_run_again(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    await publisher.revoke("acme", two[1])
    assert channel.agent() == (two[0], {})
    with pytest.raises(ConfigError):
        await publisher.rollback("acme", two[1])
    assert await publisher.revoke("acme", two[0]) is None
    assert channel.agent() == (None, {})


async def test_two_that_revoke_at_once_leave_the_channel_on_a_version_that_may_run(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    """Another one revokes the version that would take its place, before it does."""
    await publisher.publish(*channel.version(3))
    channel.overtake = lambda: publisher.revoke("acme", two[1])
    pointer = await publisher.revoke("acme", channel.version(3)[1].version)
    assert pointer is not None and pointer.version == two[0]
    assert channel.agent() == (two[0], {})
    assert (await publisher.published("acme")).is_revoked(two[1])


async def test_a_decision_outlives_a_trainer_that_dies_before_it_sees_that_it_came_second(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    await publisher.rollback("acme", two[0], pinned=True)
    key, value = record_of(KEY, *channel.version(3), epoch=3)
    channel.log.append(TOPIC, value, key=key)
    assert channel.in_service() == (two[0], True)


async def test_the_epoch_of_a_deleted_version_is_not_given_again(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    """A host that has seen it would refuse the next version as an older one."""
    for name in two:
        await publisher.revoke("acme", name)
        await publisher.delete(await publisher.published("acme"), name)
    channel.log.compact(TOPIC)
    assert (await publisher.publish(*channel.version(3))).epoch == 3
    assert channel.agent() == (channel.version(3)[1].version, {})


async def test_a_canary_of_the_version_in_service_leaves_it_in_service(publisher: Publisher, channel: Channel) -> None:
    """A version has one record, and compaction keeps the last one."""
    await publisher.publish(*channel.version(1))
    await publisher.publish(*channel.version(1), canary_share=0.5)
    assert channel.in_service() == (channel.version(1)[1].version, False)


async def test_a_canary_reaches_its_share_and_a_newer_stable_pointer_ends_it(
    publisher: Publisher, channel: Channel
) -> None:
    first, second = channel.version(1)[1].version, channel.version(2)[1].version
    await publisher.publish(*channel.version(1))
    await publisher.publish(*channel.version(2), canary_share=0.5)
    names = [f"agent-{number}" for number in range(100)]
    cohort = {name: second if in_cohort(name, 0.5, second) else first for name in names}
    assert set(cohort.values()) == {first, second}
    assert {name: channel.agent(name)[0] for name in names} == cohort
    await publisher.rollback("acme", first, "the trial was lost")
    assert {channel.agent(name)[0] for name in names} == {first}


async def test_a_new_key_goes_on_from_what_the_old_one_signed(publisher: Publisher, channel: Channel) -> None:
    first, second = channel.version(1), channel.version(2)
    await publisher.publish(*first)
    async with channel.publisher(OTHER, trusted=KEY.public_base64) as rotated:
        assert (await rotated.published("acme")).complete() == first
        assert (await rotated.publish(*second)).epoch == 2
        await rotated.revoke_key("acme", KEY.key_id)
        await rotated.rollback("acme", second[1].version, "still known")
    assert channel.agent(trusted=BOTH) == (second[1].version, {})


async def test_agents_follow_a_new_key_that_does_not_know_the_old_one(
    publisher: Publisher, channel: Channel, two: tuple[str, str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await publisher.revoke("acme", two[1])  # epoch 3 puts the first one back
    key, value = record_of(create_signing_key(tmp_path / "stranger"), *channel.version(4), epoch=2**62)
    channel.log.append(TOPIC, value, key=key)
    async with channel.publisher(OTHER) as rotated:
        assert (await rotated.publish(*channel.version(3))).epoch == 4
        assert channel.agent(trusted=BOTH) == (channel.version(3)[1].version, {"unknown_key": 1})
        await rotated.revoke_key("acme", KEY.key_id)
    async with channel.publisher(OTHER) as rotated:
        await rotated.rollback("acme", channel.version(3)[1].version)
    assert channel.agent(trusted=BOTH) == (channel.version(3)[1].version, {"unknown_key": 1})
    assert caplog.text.count(f"the key {KEY.key_id}, which FLEETLORE_PUBLIC_KEY does not name") == 1


@pytest.mark.parametrize("kind", [LanguageModelManifest], indirect=True)
async def test_weights_too_large_for_a_record_come_from_the_shared_folder(
    publisher: Publisher, channel: Channel, tmp_path: Path
) -> None:
    """An agent that misses them keeps its version and asks again; one with another folder takes none."""
    weights = random_weights(1, rank=300)
    assert len(weights) > MAX_INLINE_BYTES
    large, small = (weights, manifest_for(weights, "acme", ordinal=2)), channel.version(1)
    for version in (small, large):
        await publisher.publish(*version)
    assert (await publisher.published("acme")).complete() == large
    file = tmp_path / "shared" / "acme" / f"{large[1].version}.safetensors"
    assert file.read_bytes() == weights
    file.unlink()
    with pytest.raises(BrokerUnavailable, match="missing"):
        await publisher.published("acme")

    log, clock = AdapterLog(), FakeClock()
    follower = log.feed(TRUSTED)
    agents = {
        folder: AdapterSubscriber(
            "nowhere:1", "acme", folder, TRUSTED, WeightsSlot(), feed=follower, clock=clock,
            blob_store=BlobStore(f"file://{tmp_path}/{folder}"),
        )
        for folder in ("shared", "other")
    }  # fmt: skip
    for agent in agents.values():
        await follower.join(agent)
    records = [(record.key or b"", record.value) for record in channel.log.read_all(TOPIC)]
    for content in (None, weights[:-1] + b"\x00", weights):
        if content is not None:
            file.write_bytes(content)
        await log.reread(*records)
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "fleetlore-weights"])
        clock.advance(REFETCH_SECONDS)
    assert agents["shared"].version == large[1].version
    assert agents["shared"].refused == {"missing": 1, "tampered": 1}
    assert (agents["other"].version, agents["other"].refused) == (small[1].version, {"not_allowed": 3})
    for agent in agents.values():
        await follower.leave(agent)


async def test_a_listing_shows_versions_in_order_and_the_newest_pointer(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    """A writer without a key, or one that replays an old record, must not keep readers from the topic."""
    own = f"{channel.kind.name}/{two[1]}".encode()
    junk = (b'{"epoch": null}', b'{"epoch": "9"}', b"[1]", b"{}", b"no json", b'{"manifest": 1}', b"\n\n")
    replayed = record_of(KEY, *channel.version(1), epoch=1)
    odd = [*((each, value) for each in (own, b"x/y") for value in junk), (b"x/y", b'{"created": "today"}')]
    for key, value in (*odd, replayed):
        channel.log.append(TOPIC, value, key=key)
    ack = b'{"manifest": {"name": "calls", "version": "forged"}, "channel": "stable", "epoch": 9}'
    channel.log.append(topic("acme", "adapters.acks"), ack, key=b"calls/forged")
    listed = await read_adapters("nowhere:1", "acme")
    assert [manifest["ordinal"] for manifest in listed.manifests] == [1, 2]
    assert [(p["channel"], p["epoch"], p["version"]) for p in listed.pointers] == [("stable", 2, two[1])]
    assert await read_weights("nowhere:1", "acme", channel.kind.name) == channel.version(2)[0]
    assert await read_weights("nowhere:1", "acme", "another") is None


async def test_a_broker_that_lost_everything_is_filled_again_with_all_but_what_is_revoked(
    publisher: Publisher, channel: Channel, two: tuple[str, str]
) -> None:
    await publisher.rollback("acme", two[0])
    await publisher.revoke("acme", two[1])
    channel.log = InMemoryLog()
    assert [await publisher.restore("acme") for _ in range(2)] == [1, 0]
    listed = await read_adapters("nowhere:1", "acme")
    assert [(p["version"], p["epoch"]) for p in listed.pointers] == [(two[0], 3)]
    assert [each["version"] for each in listed.manifests] == [two[0]], "a revoked version is not sent again"


async def test_what_a_retired_key_signed_stays_in_the_store(channel: Channel, tmp_path: Path) -> None:
    """The trainer's folder outlives its keys: `restore` failed on the first document of one that was taken back."""
    store = LocalMirror(tmp_path / "store")
    weights, manifest = channel.version(1)
    store.write(f"acme/{channel.kind.name}/{manifest.version}.record", record_of(KEY, weights, manifest, 1)[1])
    revocation = Revocation("acme", "version", "0" * 64, "bad", 0.0)
    store.write(f"acme/version-{revocation.what}.revoked", KEY.sign(revocation))
    for trusted, restored in (("", 0), (KEY.public_base64, 1)):
        async with channel.publisher(OTHER, store, trusted=trusted) as publisher:
            assert await publisher.restore("acme") == restored
    listed = await read_adapters("nowhere:1", "acme")
    assert [each["version"] for each in listed.pointers] == [manifest.version]
    assert [each["what"] for each in listed.revocations] == ["0" * 64]


async def test_a_stale_store_never_moves_the_channel_back(publisher: Publisher, channel: Channel) -> None:
    await publisher.publish(*channel.version(1))
    async with channel.publisher() as elsewhere:
        await elsewhere.publish(*channel.version(2))
    await publisher.restore("acme")
    assert channel.in_service()[0] == channel.version(2)[1].version


async def test_old_versions_are_forgotten(channel: Channel, tmp_path: Path) -> None:
    store = LocalMirror(tmp_path / "store")
    async with channel.publisher(store=store, kept_versions=2) as publisher:
        for number in range(1, 5):
            await publisher.publish(*channel.version(number))
        kept = (await publisher.published("acme")).versions
    assert set(kept) == {channel.version(number)[1].version for number in (3, 4)}
    assert len(list(store.records("acme", channel.kind.name))) == 2
    assert channel.in_service()[0] == channel.version(4)[1].version


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


async def test_no_broker_and_no_key_are_errors_with_a_name() -> None:
    with pytest.raises(BrokerUnavailable):
        async with AdapterPublisher(CallsManifest, "127.0.0.1:1", KEY):
            pass
    with pytest.raises(BrokerUnavailable):
        await read_adapters("127.0.0.1:1", "default", timeout_seconds=1.0)
    with pytest.raises(ConfigError, match="SIGNING_KEY"):
        AdapterPublisher.from_settings(CallsManifest, Settings())


async def test_a_broker_that_goes_away_is_not_waited_for_without_end() -> None:
    with MockCluster(1) as cluster:
        for name in ADAPTER_TOPICS:
            cluster.create_topic(topic("acme", name), 1)
        async with AdapterPublisher(CallsManifest, cluster.address, KEY, timeout_seconds=2) as publisher:
            await publisher.revoke_key("acme", "0" * 16)
            cluster.down(1)
            async with asyncio.timeout(120):
                with pytest.raises(BrokerUnavailable, match="did not take a batch"):
                    await publisher.revoke_key("acme", "0" * 16)


@pytest.fixture
async def follow(broker: EmbeddedBroker, tenant: str, kind: Kind) -> AsyncIterator[Callable[..., Any]]:
    """Start an agent on the real broker, and wait until it has read the topics."""
    running: list[AdapterSubscriber[Any]] = []

    async def start(agent: str) -> AdapterSubscriber[Any]:
        running.append(AdapterSubscriber(broker.address, tenant, agent, TRUSTED, SLOTS[kind]()))
        await running[-1].start()
        assert await running[-1].caught_up(120)
        return running[-1]

    yield start
    for subscriber in running:
        await subscriber.close()


async def test_a_broker_brings_each_version_to_who_is_there_and_who_comes_late_on_one_connection(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, follow: Any, kind: Kind
) -> None:
    assert (await read_adapters(broker.address, tenant, 120)).manifests == ()
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks")
    version = version_of(kind, 1, tenant)
    early, leaves = await follow("early"), await follow("leaves")
    assert [task.get_name() for task in asyncio.all_tasks()].count("fleetlore-adapters") == 1
    await leaves.close()
    async with AdapterPublisher(kind, broker.address, KEY, timeout_seconds=120) as publisher:
        await publisher.publish(*version)
        await until(lambda: early.version == version[1].version)
        late = await follow("late")
        assert (late.version, leaves.version) == (version[1].version, None)
        acks: list[dict[str, Any]] = []
        async with asyncio.timeout(120):
            while len(acks) < 2:
                acks = list((await read_adapters(broker.address, tenant, 120)).acks)
        assert {(ack["agent"], ack["version"], ack["result"], ack["epoch"]) for ack in acks} == {
            (agent, version[1].version, "applied", 1) for agent in ("early", "late")
        }
        assert all(0 < ack["load_seconds"] < 60 for ack in acks)
        await leaves.start()
        await until(lambda: leaves.version == version[1].version)
        await publisher.revoke(tenant, version[1].version)
        await until(lambda: early.version is late.version is leaves.version is None)
    assert early.refused == late.refused == {}


@pytest.mark.slow  # the bound holds where no other test runs
async def test_what_a_person_decides_reaches_all_agents_soon(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, follow: Any, kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar is a second. A busy machine is late in some of them."""
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks")
    versions = [version_of(kind, seed, tenant) for seed in (1, 2)]
    first, second = (manifest.version for _, manifest in versions)
    seconds = []
    async with AdapterPublisher(kind, broker.address, KEY) as publisher:
        for version in versions:
            await publisher.publish(*version)
        agents = [await follow(f"a{number}") for number in range(20)]
        decisions: list[tuple[str, Callable[[], Awaitable[object]], str | None]] = [
            ("rollback", lambda: publisher.rollback(tenant, first), first),
            ("pin", lambda: publisher.rollback(tenant, second, pinned=True), second),
            ("revoke", lambda: publisher.revoke(tenant, second), first),
            ("revoke the last", lambda: publisher.revoke(tenant, first), None),
        ]
        for name, decide, running in decisions:
            await decide()
            began = time.monotonic()
            await until(lambda running=running: all(agent.version == running for agent in agents))
            seconds.append(time.monotonic() - began)
            with capsys.disabled():
                print(f" {name}: {seconds[-1]:.2f} s", end="")
    assert min(seconds) < 1.0
