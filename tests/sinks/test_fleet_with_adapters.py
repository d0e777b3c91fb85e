"""An agent's `Fleet` beside a publisher of adapters, on a real broker."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import Fleet
from fleetlore.adapters.listing import read_to_end
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.lora.adapter import read_tensors, write_tensors
from fleetlore.lora.follow import PolicyFollower
from fleetlore.wire.adapter_manifest import CallsManifest, LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from sinks.adapter_publisher import AdapterPublisher
from tests.random_adapters import manifest_for, random_weights, version_of
from tests.waiting import until

TOPICS = (*ADAPTER_TOPICS, "adapters.acks", "events", "patterns", "items")


async def test_an_agent_swaps_the_call_model_between_two_actions(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(broker.address, tenant, *TOPICS, partitions=1)
    key = create_signing_key(tmp_path / "key")
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", key.public_base64)
    versions = [version_of(CallsManifest, seed, tenant) for seed in (1, 2)]
    first, second = (manifest.version for _, manifest in versions)
    async with AdapterPublisher(CallsManifest, broker.address, key) as publisher:
        await publisher.publish(*versions[0])
        async with (
            Fleet("acts", broker=broker.address, tenant=tenant) as fleet,
            Fleet("watches", broker=broker.address, tenant=tenant) as other,
        ):
            await until(lambda: fleet.call_model_version == first)
            async with fleet.session(goal="tidy up") as session:
                async with session.action("shell", {"command": "ls"}) as action:
                    await publisher.publish(*versions[1])
                    await until(lambda: other.call_model_version == second)
                    assert fleet.call_model_version == first
                    action.result = "a b"
                await until(lambda: fleet.call_model_version == second)
                async with session.action("shell", {"command": "rm a"}) as action:
                    action.result = ""
                session.succeed()


def lora(tenant: str, seed: int) -> tuple[bytes, LanguageModelManifest]:
    """A LoRA that passes the checks of a follower."""
    weights = random_weights(seed)
    scale = {"alpha": 16.0, "base_sha256": "b" * 64, "rank": 8, "rank_stabilized": False}
    file = read_tensors(weights)
    whole = write_tensors(file._replace(metadata={"fleetlore": orjson.dumps(scale).decode()}))
    return whole, manifest_for(whole, tenant, **scale, targets=("v_proj",), tensors=file.shapes)


async def test_each_outcome_names_the_version_that_the_agents_own_model_ran(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(broker.address, tenant, *TOPICS, partitions=1)
    key = create_signing_key(tmp_path / "key")
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", key.public_base64)
    versions = [lora(tenant, seed) for seed in (1, 2)]
    async with AdapterPublisher(LanguageModelManifest, broker.address, key) as publisher:
        await publisher.publish(*versions[0])
        async with (
            PolicyFollower(tmp_path / "kept", tenant=tenant, server="acts", broker=broker.address) as policy,
            Fleet("acts", broker=broker.address, tenant=tenant, policy=policy) as fleet,
        ):
            async with fleet.session(goal="tidy up") as session:
                for version in versions:
                    await publisher.publish(*version)
                    await until(lambda version=version: policy.version == version[1].version)
                    async with session.action("shell", {"command": "ls"}) as action:
                        action.result = "a b"
            assert await fleet.emitter.flush(120)
    records = await read_to_end(broker.address, [topic(tenant, "events")], 120)
    values = [orjson.loads(record.value or b"") for record in records]
    events = [event for value in values for event in (value if isinstance(value, list) else [value])]
    ran = [event["data"].get("fleetlore.adapter") for event in events if ".outcome." in event["type"]]
    assert ran == [manifest.version for _, manifest in versions]


async def test_without_a_public_key_an_agent_runs_without_the_call_model(
    broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("FLEETLORE_PUBLIC_KEY", raising=False)
    with caplog.at_level("INFO", "fleetlore"):
        async with Fleet("a", broker=broker.address, tenant=tenant, ready_seconds=0) as fleet:
            assert fleet.call_model is None and fleet.call_model_version is None
    assert sum("FLEETLORE_PUBLIC_KEY" in record.message for record in caplog.records) == 1
