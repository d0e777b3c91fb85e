"""An agent's `Fleet(adapters=True)` beside a publisher, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from fleetlore import Fleet
from fleetlore.adapters.listing import read_to_end
from fleetlore.errors import ConfigError
from fleetlore.testing.adapters import manifest_for, random_weights
from fleetlore.wire.adapter_manifest import ProceduralManifest
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import ADAPTER_TOPICS, AdapterPublisher
from sinks.signing_key import create_signing_key
from streams.embedded.broker import EmbeddedBroker

MakeTopics = Callable[..., Awaitable[None]]


async def running(fleet: Fleet, version: str) -> None:
    async with asyncio.timeout(60):
        while fleet.adapter_version != version:
            await asyncio.sleep(0.02)


async def test_an_agent_swaps_between_two_actions_and_each_outcome_names_what_it_ran_with(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(
        broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks", "events", "patterns", "items", partitions=1
    )
    key = create_signing_key(tmp_path / "key")
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", key.public_base64)
    versions = [(weights, manifest_for(weights, tenant)) for weights in (random_weights(1), random_weights(2))]
    first, second = (manifest.version for _, manifest in versions)
    async with AdapterPublisher(ProceduralManifest, broker.address, key) as publisher:
        await publisher.publish(*versions[0])
        async with (
            Fleet("acts", broker=broker.address, tenant=tenant, adapters=True) as fleet,
            Fleet("watches", broker=broker.address, tenant=tenant, adapters=True) as other,
        ):
            await running(fleet, first)
            async with fleet.session(goal="tidy up") as session:
                async with session.action("shell", {"command": "ls"}) as action:
                    await publisher.publish(*versions[1])
                    await running(other, second)
                    assert fleet.adapter_version == first
                    action.result = "a b"
                await running(fleet, second)
                async with session.action("shell", {"command": "rm a"}) as action:
                    action.result = ""
                session.succeed()
            assert await fleet.emitter.flush(30)
    records = await read_to_end(broker.address, [topic(tenant, "events")], 20)
    values = [orjson.loads(record.value or b"") for record in records]
    events = [event for value in values for event in (value if isinstance(value, list) else [value])]
    ran = [event["data"].get("fleetlore.adapter") for event in events if ".outcome." in event["type"]]
    assert ran == [first, second]


async def test_without_a_public_key_no_policy_is_followed(
    broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEETLORE_PUBLIC_KEY", raising=False)
    with pytest.raises(ConfigError, match="FLEETLORE_PUBLIC_KEY"):
        async with Fleet("a", broker=broker.address, tenant=tenant, adapters=True):
            raise AssertionError("it was entered")
