"""Decisions on the page become records on a broker, which agents and trainer obey."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.listing import read_adapters
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS
from sinks.adapter_publisher import AdapterPublisher
from sinks.producer import BatchProducer
from streams.console.actions import Actions
from streams.stage.base import Outgoing
from tests.random_adapters import manifest_for, random_weights
from tests.streams.console.lore import item

SAID = {"by": "Ann", "why": "password=hunter2hunter2 is in it"}
LORE_TOPICS = ("patterns", "items", "decisions", "decisions.history")


async def test_a_version_is_pinned_unpinned_rolled_back_to_and_revoked(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    create_signing_key(key)
    settings = Settings(broker=broker.address, signing_key=str(key))
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS)
    versions = []
    async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
        for seed in (1, 2):
            manifest = manifest_for(weights := random_weights(seed), tenant, ordinal=seed)
            await publisher.publish(weights, manifest)
            versions.append(manifest.version)
    actions = Actions(settings, tenant)

    async def after(action: str, version: str) -> tuple[str, bool, str]:
        await actions.decide(action, "llm", version, **SAID)
        (pointer,) = (await read_adapters(broker.address, tenant)).pointers
        return pointer["version"], bool(pointer.get("pinned")), pointer["reason"]

    old, new = versions
    moved_to, pinned, reason = await after("pin", old)
    assert (
        (moved_to, pinned) == (old, True) and "password=" in reason and "hunter2" not in reason and "Ann" not in reason
    )
    assert (await after("unpin", old))[:2] == (old, False)
    assert (await after("rollback", new))[:2] == (new, False)
    assert (await after("revoke", new))[:2] == (old, False)
    with pytest.raises(ConfigError, match="0 published versions"):
        await actions.decide("pin", "llm", "0" * 64, **SAID)


async def test_an_item_is_told_to_nobody_until_it_is_shown_again(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, *LORE_TOPICS)
    async with BatchProducer(broker.address) as producer:
        await producer.deliver([Outgoing(tenant, "items", "i1", item("i1").to_json())])
    actions = Actions(Settings(broker=broker.address), tenant)

    async def told() -> bool:
        return "i1" in (await LoreReplica.snapshot(broker.address, tenant)).items

    assert await told()
    await actions.decide("revoke", "item", "i1", **SAID)
    assert not await told()
    await actions.decide("show", "item", "i1", **SAID)
    assert await told()
    await actions.close()


def test_versions_need_the_key_and_nothing_else_is_offered() -> None:
    without, having = Actions(Settings(), "default"), Actions(Settings(signing_key="key"), "default")
    for kind in ("item", "pattern", "agent"):
        assert without.offered(kind) == having.offered(kind) != {}
    assert not without.offered("calls") and set(having.offered("calls")) == {"rollback", "pin", "unpin", "revoke"}
    assert not having.offered("nothing")


async def test_a_decision_that_no_broker_takes_is_said(tenant: str) -> None:
    actions = Actions(Settings(broker="127.0.0.1:1", milvus="http://127.0.0.1:1"), tenant)
    await actions.decide("distrust", "agent", "probe", **SAID)
    async with asyncio.timeout(30):
        while not actions.progress.get("probe", "").startswith("not done: "):
            await asyncio.sleep(0.05)
    assert "127.0.0.1:1" in actions.progress["probe"]
    await actions.close()
