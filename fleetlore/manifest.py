"""What is said, and signed, about an adapter: its manifest and the pointer that puts it into service.

Both are canonical JSON (sorted keys) under one Ed25519 signature. The signature is checked over the parsed object as it
came, so that a field this release does not know yet stays covered by it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from fleetlore.errors import AdapterRefused, ConfigError, ModelUnavailable

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:
    raise ModelUnavailable("adapters need: pip install 'fleetlore[policy]'") from error

SCHEMA = 1
ADAPTER = "procedural"
CHANNEL = "stable"
MAX_WEIGHTS_BYTES = 512 * 1024

PublicKeys = Mapping[str, Ed25519PublicKey]


@dataclass(frozen=True, slots=True)
class DataRange:
    """Records [start, stop) of one partition that a version was offered beyond what its parent was."""

    topic: str
    partition: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Fixed inputs, drawn from `seed`, and what the folded network must answer to them."""

    seed: int
    expected: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AdapterManifest:
    """One immutable adapter version.

    Attributes:
        version: sha256 of the weights; `ordinal` counts versions for people.
        data, sessions, agents: what it learned from beyond its parent; `agents` is how many, never who.
        tools: those it may judge, by what it showed on held-out sessions; on any other tool the policy abstains.
        metrics: the gate's figures.
        created: Unix seconds.
    """

    name: str
    version: str
    ordinal: int
    parent: str | None
    tenant: str
    base_sha256: str
    encoder: str
    encoder_sha256: str
    rank: int
    alpha: int
    targets: tuple[str, ...]
    tensors: dict[str, tuple[int, ...]]
    size_bytes: int
    data: tuple[DataRange, ...]
    sessions: int
    agents: int
    tools: tuple[str, ...]
    metrics: dict[str, float]
    probe: Probe
    created: float
    schema: int = SCHEMA

    @property
    def key(self) -> bytes:
        """Key of its record on `adapters.manifests`."""
        return f"{self.name}/{self.version}".encode()

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True)
class AdapterPointer:
    """Which version a channel runs. A higher epoch wins; a rollback is a newer pointer to an older version."""

    name: str
    channel: str
    tenant: str
    version: str
    epoch: int
    reason: str
    created: float
    schema: int = SCHEMA

    @property
    def key(self) -> bytes:
        """Key of its record on `adapters.pointers`."""
        return f"{self.name}/{self.channel}".encode()


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The trainer's Ed25519 key. `key_id` names it in what it signs, so that keys can be rotated."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, data: bytes) -> SigningKey:
        """From an unencrypted PKCS #8 PEM, as `openssl genpkey -algorithm ed25519` writes it. Raises ConfigError."""
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError("the signing key is not an unencrypted PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError("the signing key is not an Ed25519 key")
        return cls(key)

    def to_pem(self) -> bytes:
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public_base64(self) -> str:
        return base64.b64encode(self.private.public_key().public_bytes_raw()).decode()

    @property
    def key_id(self) -> str:
        return key_id_of(self.private.public_key())

    def sign(self, document: AdapterManifest | AdapterPointer) -> bytes:
        """Canonical JSON of the document with `key_id` and `signature` added."""
        body = asdict(document) | {"key_id": self.key_id}
        signature = self.private.sign(_canonical(body))
        return _canonical(body | {"signature": base64.b64encode(signature).decode()})


def key_id_of(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def public_keys(*texts: str) -> dict[str, Ed25519PublicKey]:
    """Trusted keys by id, from raw public keys in base64. Raises ConfigError."""
    keys = {}
    for text in texts:
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(text.strip(), validate=True))
        except ValueError as error:
            raise ConfigError("a public key is 32 bytes in base64") from error
        keys[key_id_of(key)] = key
    return keys


def verify_manifest(data: bytes, trusted: PublicKeys) -> AdapterManifest:
    """The manifest in `data` if a trusted key signed it. Raises AdapterRefused."""
    body = _verified(data, trusted)
    try:
        body["data"] = tuple(DataRange(**entry) for entry in body["data"])
        body["probe"] = Probe(body["probe"]["seed"], tuple(float(value) for value in body["probe"]["expected"]))
        body["tensors"] = {name: tuple(shape) for name, shape in body["tensors"].items()}
        body["targets"] = tuple(body["targets"])
        body["tools"] = tuple(body["tools"])
        return AdapterManifest(**{name: body[name] for name in AdapterManifest.__dataclass_fields__})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AdapterRefused("malformed", f"manifest: {error!r}") from error


def verify_pointer(data: bytes, trusted: PublicKeys) -> AdapterPointer:
    """The pointer in `data` if a trusted key signed it. Raises AdapterRefused."""
    body = _verified(data, trusted)
    try:
        pointer = AdapterPointer(**{name: body[name] for name in AdapterPointer.__dataclass_fields__})
    except KeyError as error:
        raise AdapterRefused("malformed", f"pointer: {error!r}") from error
    if not isinstance(pointer.epoch, int) or not isinstance(pointer.version, str):
        raise AdapterRefused("malformed", "pointer: epoch or version has the wrong type")
    return pointer


def _verified(data: bytes, trusted: PublicKeys) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
        signature = base64.b64decode(body.pop("signature"), validate=True)
        key_id, schema = str(body["key_id"]), body["schema"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterRefused("malformed", repr(error)) from error
    key = trusted.get(key_id)
    if key is None:
        raise AdapterRefused("unknown_key", key_id[:64])
    try:
        key.verify(signature, _canonical(body))
    except InvalidSignature as error:
        raise AdapterRefused("tampered", "the signature does not match") from error
    if schema != SCHEMA:
        raise AdapterRefused("schema", f"schema {schema}, this release reads {SCHEMA}")
    assert isinstance(body, dict)
    return body


def _canonical(body: dict[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
