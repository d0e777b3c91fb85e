"""Follow docs/reference/adapters.md as a reader that knows nothing else: Kafka, JSON, Ed25519 and arithmetic."""

import base64
import hashlib
import json
import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS
from sinks.adapter_publisher import AdapterPublisher
from tests.random_adapters import manifest_for, random_weights

Numbers = Any
MakeTopics = Callable[..., Awaitable[None]]
SIGNATURE = re.compile(rb',"signature":"([A-Za-z0-9+/]+=*)"')


def document(value: bytes, trusted: dict[str, Ed25519PublicKey]) -> dict[str, Any]:
    """Signatures: the member is cut out of the bytes, nothing is serialised."""
    body: dict[str, Any] = json.loads(value)
    (signature,) = SIGNATURE.findall(value)
    trusted[body["key_id"]].verify(base64.b64decode(signature), SIGNATURE.sub(b"", value))
    assert body["schema"] == 1
    return body


def tensors(data: bytes) -> dict[str, Numbers]:
    (size,) = struct.unpack("<Q", data[:8])
    header, numbers = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    kinds = {"F16": "<f2", "F32": "<f4"}
    return {
        name: np.frombuffer(numbers[slice(*entry["data_offsets"])], kinds[entry["dtype"]])
        .reshape(entry["shape"])
        .astype(np.float32)
        for name, entry in header.items()
    }


async def records_of(address: str, tenant: str) -> dict[str, bytes]:
    """The newest of each key, in the order of the log."""
    records: dict[str, bytes] = {}
    partition = TopicPartition(f"fleetlore.{tenant}.adapters", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        (end,) = (await consumer.end_offsets([partition])).values()
        while await consumer.position(partition) < end:
            for batch in (await consumer.getmany(timeout_ms=100)).values():
                for record in batch:
                    records.pop(record.key.decode(), None)
                    if record.value is not None:
                        records[record.key.decode()] = record.value
    finally:
        await consumer.stop()
    return records


def chosen(records: dict[str, bytes], trusted: dict[str, Ed25519PublicKey], agent: str) -> str | None:
    """Which version to run."""
    newest: dict[str, dict[str, Any]] = {}
    revoked = set()
    for key, value in records.items():
        signed, _, weights = value.partition(b"\n")
        body = document(signed, trusted)
        if key.startswith("revoked/"):
            revoked.add(body["what"])
            continue
        version = body["manifest"]["version"]
        assert key == f"llm/{version}" and hashlib.sha256(weights).hexdigest() == version
        if body["epoch"] > newest.get(body["channel"], {"epoch": 0})["epoch"]:
            newest[body["channel"]] = body
    stable, canary = newest.get("stable"), newest.get("canary")
    followed = stable
    if canary and (stable is None or canary["epoch"] > stable["epoch"]):
        version = canary["manifest"]["version"]
        drawn = int.from_bytes(
            hashlib.sha256(f"canary/{version}/{agent.partition(':')[0]}".encode()).digest()[:8], "big"
        )
        followed = canary if drawn < canary["share"] * 2**64 else stable
    if followed is None or followed["manifest"]["version"] in revoked:
        return None
    return str(followed["manifest"]["version"])


async def test_a_reader_made_of_the_page_says_what_the_package_says(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, partitions=1)
    key = create_signing_key(tmp_path / "key")
    first, second = random_weights(1), random_weights(2)
    told: dict[str, Any] = {"tools": ("sql", "shell"), "metrics": {"größe": 1e-7, "whole": 3.0}}
    async with AdapterPublisher(LanguageModelManifest, broker.address, key) as publisher:
        good = await publisher.publish(first, manifest_for(first, tenant, **told))
        signed = (await records_of(broker.address, tenant))[f"llm/{good.version}"].partition(b"\n")[0]
        await publisher.publish(second, manifest_for(second, tenant, ordinal=2))
        await publisher.revoke(tenant, good.version)
        records = await records_of(broker.address, tenant)
        public = base64.b64decode(key.public_base64)
        trusted = {hashlib.sha256(public).hexdigest()[:16]: Ed25519PublicKey.from_public_bytes(public)}
        assert document(signed, trusted)["manifest"]["metrics"] == told["metrics"]
        running = chosen(records, trusted, "a1")
        assert running == hashlib.sha256(second).hexdigest()
        assert f"revoked/version/{good.version}" in records
        canary = await publisher.publish(first, manifest_for(first, tenant, ordinal=3), canary_share=0.5)
        records = await records_of(broker.address, tenant)
    assert canary.version == good.version
    assert {chosen(records, trusted, f"a{n}") for n in range(20)} == {running, None}  # revoked stays revoked

    signed, _, weights = records[f"llm/{running}"].partition(b"\n")
    with pytest.raises(InvalidSignature):
        document(signed.replace(b'"epoch":', b'"epoch":1'), trusted)
    assert weights == second
    assert set(tensors(weights)) == {f"base_model.model.v_proj.lora_{side}.weight" for side in "AB"}
