"""Which versions have learned of an erased session, and what is left of those."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, DataRange
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from sinks.adapter_publisher import AdapterPublisher, LocalMirror
from streams.offline.erase import has_learned, learned_versions
from streams.offline.erase_search import Found, OnTopic
from tests.random_adapters import version_of


def found(offset: int | None, ended: float = 100.0) -> Found:
    made = Found()
    made.add("a", "s", 0, ended)
    if offset is not None:
        made.topics["trajectories"] = OnTopic(places={(0, offset)}, sessions={stable_hash(session_key("a", "s"))})
    return made


def calls(start: int, stop: int, created: float) -> AdapterManifest:
    data = (DataRange("fleetlore.t.trajectories", 0, start, stop),)
    return CallsManifest(
        version="v", ordinal=1, parent=None, tenant="t", size_bytes=1, data=data, sessions=9, agents=2, tools=(),
        metrics={}, created=created, calls=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("offset", "ended", "created", "learned"),
    [
        (5, 100.0, 200.0, True),
        (10, 100.0, 200.0, False),  # behind what it read
        (None, 100.0, 200.0, True),  # its record has left the log: taken for one that was read
        (None, 100.0, 50.0, False),  # the version is older
        (None, 0.0, 200.0, False),  # nobody knows such a session
    ],
)
def test_a_call_model_has_learned_what_its_ranges_hold(
    offset: int | None, ended: float, created: float, learned: bool
) -> None:
    version = calls(0, 10, created)
    assert has_learned(version, found(offset, ended)) is learned


async def test_nothing_is_left_of_a_version_that_has_learned_of_it(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    """The topic is compacted: what is not deleted there, weights and the names in them, stays for ever."""
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks", partitions=1)
    create_signing_key(tmp_path / "key")
    store = LocalMirror(tmp_path / "store")
    settings = Settings(
        broker=broker.address, tenants=(tenant,), signing_key=str(tmp_path / "key"), adapters_dir=str(store.folder)
    )
    made = {}
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        for number, (start, stop) in enumerate([(6, 9), (0, 6), (0, 9)], 1):
            data = (DataRange(topic(tenant, "trajectories"), 0, start, stop),)
            made[number] = version_of(CallsManifest, number, tenant, ordinal=number, data=data)
            await publisher.publish(*made[number])
        await publisher.revoke(tenant, made[2][1].version)  # by a person, for another reason
        learned = await learned_versions(settings, tenant, found(5), erase=True)
        assert learned == [f"calls/{made[number][1].version}" for number in (3, 2)]
        records = await read_to_end(broker.address, [topic(tenant, "adapters")], 120)
        newest = {each.key: each.value for each in records if not each.key.startswith(b"revoked/")}
        innocent = made[1][1]
        mine = f"calls/{innocent.version}".encode()
        assert {key for key, value in newest.items() if value} == {mine}
        assert {key for key, _ in store.records(tenant, "calls") if key.startswith(b"calls/")} == {mine}
        published = await publisher.published(tenant)
        assert published.stable is not None and published.stable.manifest.version == innocent.version
        assert all(published.is_revoked(made[number][1].version) for number in (2, 3))
        assert await learned_versions(settings, tenant, found(5), erase=True) == []


async def test_a_revoked_version_is_not_sent_to_a_broker_that_lost_it(
    own_broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    own_broker.start()
    await make_topics(own_broker.address, tenant, *ADAPTER_TOPICS, partitions=1)
    create_signing_key(tmp_path / "key")
    settings = Settings(
        broker=own_broker.address, signing_key=str(tmp_path / "key"), adapters_dir=str(tmp_path / "store")
    )
    good, bad = (version_of(CallsManifest, number, tenant, ordinal=number) for number in (1, 2))
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        await publisher.publish(*good)
        await publisher.publish(*bad)
        await publisher.revoke(tenant, bad[1].version)
    own_broker.kill()
    own_broker.start()
    await make_topics(own_broker.address, tenant, *ADAPTER_TOPICS, partitions=1)
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        assert await publisher.restore(tenant) == 1
        assert await publisher.restore(tenant) == 0
    records = await read_to_end(own_broker.address, [topic(tenant, "adapters")], 120)
    assert [each.key for each in records if not each.key.startswith(b"revoked/")] == [
        f"calls/{good[1].version}".encode()
    ]
