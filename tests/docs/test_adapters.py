"""Follow docs/reference/adapters.md as a reader that knows nothing else: Kafka, JSON, Ed25519 and arithmetic."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import math
import random
import re
import struct
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tokenizers import Tokenizer

from benchmarks.random_adapters import manifest_for, random_weights
from fleetlore.risk.model import RiskModel, packed
from fleetlore.wire.adapter_manifest import FailureSignature, GoalPrototypes, ProceduralManifest
from fleetlore.wire.trajectory import Step
from sinks.adapter_publisher import ADAPTER_TOPICS, AdapterPublisher
from sinks.signing_key import create_signing_key
from streams.embedded.broker import EmbeddedBroker

Numbers = Any
MakeTopics = Callable[..., Awaitable[None]]
SIGNATURE = re.compile(rb',"signature":"([A-Za-z0-9+/]+=*)"')
BASE = (resources.files("fleetlore") / "base" / "procedural.safetensors").read_bytes()
MODEL = Path(str(importlib.util.find_spec("wordllama").origin)).parent  # type: ignore[union-attr]
TABLE = (MODEL / "weights" / "l2_supercat_256.safetensors").read_bytes()
TOKENIZER = (MODEL / "tokenizers" / "l2_supercat_tokenizer_config.json").read_bytes()


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


def folded(base: dict[str, Numbers], weights: bytes, manifest: dict[str, Any]) -> dict[str, Numbers]:
    adapter, network = tensors(weights), dict(base)
    assert {name: list(tensor.shape) for name, tensor in adapter.items()} == manifest["tensors"]
    for block in (0, 1):
        for target in ("q", "k", "v", "o", "up", "down"):
            a, b = (adapter[f"base_model.model.blocks.{block}.{target}.lora_{factor}.weight"] for factor in "AB")
            name = f"blocks.{block}.{target}.weight"
            network[name] = network[name] + np.float32(manifest["alpha"] / manifest["rank"]) * (b @ a)
    return network


def answers(w: dict[str, Numbers], vectors: Numbers) -> tuple[Numbers, Numbers]:
    """The network: P(step fails) and signature at each token."""

    def linear(name: str, x: Numbers) -> Numbers:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, x: Numbers) -> Numbers:
        x = x - x.mean(1, keepdims=True)
        return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    erf, count = np.vectorize(math.erf), len(vectors)
    kinds = [0 if t == 0 else 1 if t % 2 else 2 for t in range(count)]
    x = linear("project", 16 * vectors) + w["positions.weight"][:count] + w["kinds.weight"][kinds]
    for block in ("blocks.0.", "blocks.1."):
        h = norm(block + "before_attention", x)
        q, k, v = (linear(block + name, h) for name in "qkv")
        heads = []
        for i in range(0, 128, 32):
            scores = q[:, i : i + 32] @ k[:, i : i + 32].T / math.sqrt(32)
            shares = np.exp(scores - scores.max()) * np.tri(count)
            heads.append(shares / shares.sum(1, keepdims=True) @ v[:, i : i + 32])
        x = x + linear(block + "o", np.concatenate(heads, 1))
        z = linear(block + "up", norm(block + "before_feed", x))
        x = x + linear(block + "down", z / 2 * (1 + erf(z / math.sqrt(2))))
    y = norm("last_norm", x)
    signatures = linear("signature_head", y)
    return 1 / (1 + np.exp(-linear("step_head", y)[:, 0])), signatures / np.linalg.norm(signatures, axis=1)[:, None]


def probe_inputs(seed: int) -> Numbers:
    state = [seed]
    for i in range(1, 624):  # init_genrand
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
    uniform = random.Random()
    uniform.setstate((3, (*state, 624), None))  # the same generator and the same doubles
    normal: list[float] = []
    while len(normal) < 4 * 33 * 256:
        x, y = 2 * uniform.random() - 1, 2 * uniform.random() - 1
        if 0 < (r := x * x + y * y) < 1:
            factor = math.sqrt(-2 * math.log(r) / r)
            normal += [factor * y, factor * x]
    tokens = np.array(normal).reshape(4, 33, 256)
    return tokens / np.linalg.norm(tokens, axis=2, keepdims=True)


def action_text(tool: str, arguments: Any) -> str:
    if isinstance(arguments, str) and arguments[:1] in "{[":
        arguments = json.loads(arguments)
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    words = re.sub(r'[\s{}\[\]",:]+', " ", written[:800]).strip()
    return f"{tool} {words}"[:400].strip()


def texts_of(goal: str, steps: list[Step]) -> list[str]:
    texts = [goal[:400]]
    for step in steps[-15:]:
        lines = (step.error_message or "").strip().splitlines()
        told = " ".join(part for part in ("error", step.error_type, *lines[:1]) if part)
        texts += [action_text(step.tool, step.arguments), told[:400] if step.error_type or lines else "ok"]
    return texts


class Texts:
    def __init__(self) -> None:
        self._table = tensors(TABLE)["embedding.weight"]
        self._tokenizer = Tokenizer.from_str(TOKENIZER.decode())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def vectors(self, texts: list[str]) -> Numbers:
        ids = [self._tokenizer.encode(text[:1000], add_special_tokens=False).ids for text in texts]
        means = np.array([self._table[some].mean(0) if some else np.zeros(256) for some in ids])
        return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def unpacked(text: str) -> Numbers:
    return np.frombuffer(base64.b64decode(text), "<f2").astype(np.float32)


async def records_of(address: str, tenant: str) -> dict[str, dict[str, bytes]]:
    """The newest of each key, of each topic."""
    found: dict[str, dict[str, bytes]] = {}
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        for name in ("weights", "manifests", "pointers"):
            records = found.setdefault(name, {})
            partition = TopicPartition(f"fleetlore.{tenant}.adapters.{name}", 0)
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
    return found


def chosen(records: dict[str, dict[str, bytes]], trusted: dict[str, Ed25519PublicKey], agent: str) -> str | None:
    """Which version to run."""
    signed = {key: document(value, trusted) for key, value in records["pointers"].items()}
    stable, canary = signed.get("procedural/stable"), signed.get("procedural/canary")
    pointer = stable
    if canary and (stable is None or canary["epoch"] > stable["epoch"]):
        drawn = int.from_bytes(hashlib.sha256(f"canary/{agent}".encode()).digest()[:8], "big")
        pointer = canary if drawn < canary["share"] * 2**64 else stable
    if pointer is None or f"revoked/version/{pointer['version']}" in signed:
        return None
    return str(pointer["version"])


STEPS = [
    Step(sequence=1, role="tool", tool="shell", arguments='{"cmd": "ls -l /srv", "größe": [1, 2.5, null]}'),
    Step(
        sequence=2, role="tool", tool="sql", arguments="select 1", error_type="1", error_message="\ndenied: 数据\nmore"
    ),
    Step(sequence=3, role="tool", tool="shell", arguments="{}", error_message="no type"),
]
CANDIDATES: list[tuple[str, Any]] = [("shell", {"cmd": "rm", "at": 17.25}), ("sql", "drop table a1"), ("unknown", {})]
GOAL = "clean up host 17 <now>"


async def test_a_reader_made_of_the_page_says_what_the_package_says(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, partitions=1)
    key, texts = create_signing_key(tmp_path / "key"), Texts()
    (goal,) = texts.vectors([GOAL])
    first, second = random_weights(1), random_weights(2)
    told = {
        "tools": ("sql", "shell"),
        "familiar": GoalPrototypes((packed(goal.astype(np.float32)),), 0.9),
        "signatures": (FailureSignature("p1", "shell", packed(np.full(64, 0.125, np.float32))),),
        "metrics": {"größe": 1e-7, "whole": 3.0},
    }
    async with AdapterPublisher(ProceduralManifest, broker.address, key) as publisher:
        good = await publisher.publish(first, manifest_for(first, tenant, **told))
        await publisher.publish(second, manifest_for(second, tenant, ordinal=2))
        await publisher.revoke(tenant, good.version)
        records = await records_of(broker.address, tenant)
        public = base64.b64decode(key.public_base64)
        trusted = {hashlib.sha256(public).hexdigest()[:16]: Ed25519PublicKey.from_public_bytes(public)}
        running = chosen(records, trusted, "a1")
        assert running == hashlib.sha256(second).hexdigest()
        assert f"revoked/version/{good.version}" in records["pointers"]
        canary = await publisher.publish(first, manifest_for(first, tenant, ordinal=3), canary_share=0.5)
        records = await records_of(broker.address, tenant)
    assert canary.version == good.version
    assert {chosen(records, trusted, f"a{n}") for n in range(20)} == {running, None}  # revoked stays revoked

    with pytest.raises(InvalidSignature):
        document(records["pointers"]["procedural/stable"].replace(b'"epoch":', b'"epoch":1'), trusted)

    base = tensors(BASE)
    signed = key.sign(manifest_for(first, tenant, **told))  # type: ignore[arg-type]
    for value, weights in ((signed, first), (records["manifests"][f"procedural/{running}"], second)):
        manifest = document(value, trusted)
        assert manifest["version"] == hashlib.sha256(weights).hexdigest()
        assert manifest["base_sha256"] == hashlib.sha256(BASE).hexdigest()
        assert manifest["encoder_sha256"] == hashlib.sha256(TABLE + TOKENIZER).hexdigest()
        network = folded(base, weights, manifest)
        probed = np.concatenate([answers(network, session)[0] for session in probe_inputs(manifest["probe"]["seed"])])
        assert probed == pytest.approx(manifest["probe"]["expected"], abs=1e-3)

    manifest, risk_model = document(signed, trusted), RiskModel()
    risk_model.swap(first, manifest_for(first, tenant, **told))  # type: ignore[arg-type]
    network, session = folded(base, first, manifest), texts_of(GOAL, STEPS)
    for goal_now in (GOAL, "write a poem about the sea"):
        (vector,) = texts.vectors([goal_now])
        known = (
            max(vector @ unpacked(text) for text in manifest["familiar"]["centres"]) >= manifest["familiar"]["least"]
        )
        expected = risk_model.failure_probabilities(STEPS, goal_now, CANDIDATES)
        for (tool, arguments), chance in zip(CANDIDATES, expected, strict=True):
            if not known or tool not in manifest["tools"]:
                assert chance is None
                continue
            vectors = texts.vectors([*session, action_text(tool, arguments)])
            risks, signatures = answers(network, vectors)
            assert chance == pytest.approx(risks[-1], abs=1e-4)
            warning = risk_model.risk(STEPS, goal_now, tool, arguments)
            near = [unpacked(s["vector"]) @ signatures[-1] for s in manifest["signatures"] if s["tool"] == tool]
            assert (warning is not None) == (risks[-1] > 0.5)
            if warning is not None:
                assert (warning.pattern is not None) == (max(near, default=0) >= 0.5)
    assert (
        all(risk_model.failure_probabilities(STEPS, GOAL, CANDIDATES)[:2])
        and risk_model.failure_probabilities(STEPS, GOAL, CANDIDATES)[2] is None
    )
