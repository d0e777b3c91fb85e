"""Make adapters without a trainer: random ones, signed and complete."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import safetensors.numpy
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.adapters.view import release_of
from fleetlore.calls.document import CALL_BITS, KIND_BITS, Document, quantised
from fleetlore.calls.model import LEAST_CALLS
from fleetlore.wire.adapter_manifest import (
    CHANNEL,
    AdapterManifest,
    AdapterRecord,
    CallsManifest,
    LanguageModelManifest,
)

RANK, ALPHA = 8, 16
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
TRUSTED = public_keys(KEY.public_base64)


def random_weights(seed: int, size: float = 0.2, rank: int = RANK) -> bytes:
    """A LoRA with random weights over one matrix. From a rank of 256 on it is too large for a record."""
    noise = np.random.default_rng(seed)
    shapes = {"A": (rank, 256), "B": (256, rank)}
    return bytes(
        safetensors.numpy.save(
            {
                f"base_model.model.v_proj.lora_{side}.weight": (size * noise.standard_normal(shape)).astype(np.float32)
                for side, shape in shapes.items()
            }
        )
    )


def random_call_model(seed: int) -> bytes:
    """A version of the call model with random weights, which knows the tool `shell`."""
    noise = np.random.RandomState(seed)
    calls, kinds = (quantised(noise.standard_normal(2**bits).astype(np.float32)) for bits in (CALL_BITS, KIND_BITS))
    return Document(calls=calls, kinds=kinds, bias=0.0, tools={"shell": LEAST_CALLS}).to_bytes()


def _stated(weights: bytes, tenant: str) -> dict[str, Any]:
    """The fields of any manifest, for a version learned from 32 sessions of four agents."""
    return {
        "version": hashlib.sha256(weights).hexdigest(),
        "ordinal": 1,
        "parent": None,
        "tenant": tenant,
        "size_bytes": len(weights),
        "data": (),
        "sessions": 32,
        "agents": 4,
        "tools": ("shell",),
        "metrics": {},
        "created": 1_000.0,
    }


def calls_manifest_for(weights: bytes, tenant: str, **changes: Any) -> CallsManifest:
    """A truthful manifest of a version of the call model, then `changes`."""
    return structs.replace(CallsManifest(**_stated(weights, tenant), calls=100), **changes)


def manifest_for(weights: bytes, tenant: str, **changes: Any) -> LanguageModelManifest:
    """A manifest of a LoRA over a language model, then `changes`: what it says of the tensors is theirs to say."""
    manifest = LanguageModelManifest(
        **_stated(weights, tenant),
        base="tiny",
        base_sha256="",
        rank=RANK,
        alpha=ALPHA,
        rank_stabilized=False,
        targets=(),
        tensors={},
        gate_sha256="",
    )
    return structs.replace(manifest, **changes)


def version_of(
    kind: type[AdapterManifest], seed: int, tenant: str, **changes: Any
) -> tuple[bytes, CallsManifest | LanguageModelManifest]:
    """Weights and manifest of a version of any adapter."""
    if kind is LanguageModelManifest:
        weights = random_weights(seed)
        return weights, manifest_for(weights, tenant, **changes)
    weights = random_call_model(seed)
    return weights, calls_manifest_for(weights, tenant, **changes)


def record_of(
    key: SigningKey, weights: bytes, manifest: AdapterManifest, epoch: int, **changes: Any
) -> tuple[bytes, bytes]:
    """Key and value of the record that puts a version on the stable channel. With a `uri` it holds no weights."""
    record = AdapterRecord(manifest=manifest, channel=CHANNEL, epoch=epoch, reason="test", created=1_000.0)
    record = structs.replace(record, **changes)
    return record.key, release_of(record, key, weights).value
