"""What is said, and signed, about an adapter: its manifest and the pointer that puts it into service.

Both are canonical JSON (sorted keys) under one Ed25519 signature. The signature is checked over the parsed object as it
came, so that a field this release does not know yet stays covered by it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.errors import AdapterRefused, ConfigError, ModelUnavailable

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:
    raise ModelUnavailable("adapters need: pip install 'fleetlore[adapters]'") from error

SCHEMA = 1
ADAPTER = "procedural"
CHANNEL = "stable"
CANARY = "canary"
REVOKED = "revoked/"

PublicKeys = Mapping[str, Ed25519PublicKey]


@dataclass(frozen=True, slots=True)
class DataRange:
    """Records [start, stop) of one partition that a version was offered beyond what its parent was."""

    topic: str
    partition: int
    start: int
    stop: int


class Place(NamedTuple):
    """Where a session lies: partition and offset on `judgments`, place in the record's array, and which window of it."""

    partition: int
    offset: int
    number: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """What one update learned from: places of new sessions and of rehearsed ones, and the tools whose rules had changed
    since the parent.
    """

    new: tuple[tuple[int, ...], ...]
    rehearsed: tuple[tuple[int, ...], ...]
    stale: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """All of them."""
        return tuple(Place(*place) for place in (*self.new, *self.rehearsed))


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """Where failures of one pattern lie in the version's signature space: `vector` is base64 of 64 little-endian float16."""

    pattern: str
    tool: str
    vector: str


@dataclass(frozen=True, slots=True)
class GoalPrototypes:
    """Goals that the version has learned from, as centres of clusters: base64 of 256 little-endian float16 each.

    least: cosine to the nearest centre below which a goal is of another kind; 1 in 50 of those learned would lie below it, had their own
        cluster not been learned.
    """

    centres: tuple[str, ...] = ()
    least: float = -1.0


class PrivateSteps(NamedTuple):
    """Steps of one kind: noise in units of the clip norm, and the chance that a step draws a session."""

    noise: float
    sample_rate: float
    steps: int


@dataclass(frozen=True, slots=True)
class PrivacyLedger:
    """What the weights may tell of any one session, in the sense of (epsilon, delta) differential privacy, since the base.

    spent: the steps that took in the session they cost most, as `PrivateSteps`, which epsilon is computed from; clip_norm: of what one
        session says in a step.
    """

    epsilon: float
    delta: float
    clip_norm: float
    spent: tuple[tuple[float, float, int], ...]


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
        tools: those it may judge, by what it showed on held-out sessions; on any other tool the risk model abstains.
        vain_tools: those of which it may also say whether a call is made in vain.
        metrics: the gate's figures.
        created: Unix seconds.
        batches: the updates that made it of its parent, in order: with `training` (settings, seed) they give the same
            weights again, to the byte, with the same release of torch on a CPU.
        signatures: the failure patterns it knows best, for the nearest one to a call that is likely to fail.
        familiar: what goals it may judge; elsewhere the risk model abstains.
        judges: how many of the sessions were judged by what, `source/version`.
        privacy: what was spent where it was learned with differential privacy; it then has no signatures and goals.
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
    batches: tuple[TrainedBatch, ...] = ()
    training: dict[str, float] = field(default_factory=dict)
    torch: str = ""
    judges: dict[str, int] = field(default_factory=dict)
    signatures: tuple[FailureSignature, ...] = ()
    familiar: GoalPrototypes = GoalPrototypes()
    privacy: PrivacyLedger | None = None
    vain_tools: tuple[str, ...] = ()
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
    """Which version a channel runs. A higher epoch wins; a rollback is a newer pointer to an older version.

    Attributes:
        epoch: counts over all channels of an adapter, so that a pointer of one channel can end another's.
        share: of the agents, by the hash of their names, that follow the channel `canary`, while it is newer than `stable`.
        pinned: the trainer leaves the channel alone until a person points it elsewhere.
    """

    name: str
    channel: str
    tenant: str
    version: str
    epoch: int
    reason: str
    created: float
    share: float = 1.0
    pinned: bool = False
    schema: int = SCHEMA

    @property
    def key(self) -> bytes:
        """Key of its record on `adapters.pointers`."""
        return f"{self.name}/{self.channel}".encode()


@dataclass(frozen=True, slots=True)
class Revocation:
    """A version that nobody may run any more, or a signing key that nobody may believe: for ever.

    kind: `version` or `key`; what: sha256 of the weights, or the key's id. A key cannot revoke itself.
    """

    name: str
    tenant: str
    kind: str
    what: str
    reason: str
    created: float
    schema: int = SCHEMA

    @property
    def key(self) -> bytes:
        """Key of its record on `adapters.pointers`."""
        return f"{REVOKED}{self.kind}/{self.what}".encode()


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

    def sign(self, document: AdapterManifest | AdapterPointer | Revocation) -> bytes:
        """Canonical JSON of the document with `key_id` and `signature` added."""
        body = asdict(document) | {"key_id": self.key_id}
        signature = self.private.sign(_canonical(body))
        return _canonical(body | {"signature": base64.b64encode(signature).decode()})


def key_id_of(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def public_keys(*texts: str) -> dict[str, Ed25519PublicKey]:
    """Trusted keys by id, from raw public keys in base64, several by comma. Raises ConfigError."""
    keys = {}
    for text in (key for several in texts for key in several.split(",") if key.strip()):
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(text.strip(), validate=True))
        except ValueError as error:
            raise ConfigError("a public key is 32 bytes in base64") from error
        keys[key_id_of(key)] = key
    if not keys:
        raise ConfigError("FLEETLORE_PUBLIC_KEY is empty: whose adapters are to be believed?")
    return keys


def verify_manifest(data: bytes, trusted: PublicKeys) -> AdapterManifest:
    """The manifest in `data` if a trusted key signed it. Raises AdapterRefused."""
    _verify(data, trusted)
    return _manifest(data)


@lru_cache(maxsize=64)  # all agents of a process get the same documents, and need one copy of each
def _manifest(data: bytes) -> AdapterManifest:
    body = orjson.loads(data)
    try:
        body["data"] = tuple(DataRange(**entry) for entry in body["data"])
        body["probe"] = Probe(body["probe"]["seed"], tuple(float(value) for value in body["probe"]["expected"]))
        body["tensors"] = {name: tuple(shape) for name, shape in body["tensors"].items()}
        body["targets"] = tuple(body["targets"])
        body["tools"] = tuple(body["tools"])
        body["vain_tools"] = tuple(body.get("vain_tools", ()))
        body["batches"] = tuple(_batch(entry) for entry in body.get("batches", ()))
        body["signatures"] = tuple(FailureSignature(**entry) for entry in body.get("signatures", ()))
        familiar = body.get("familiar", {})
        body["familiar"] = GoalPrototypes(tuple(familiar.get("centres", ())), float(familiar.get("least", -1.0)))
        if body.get("privacy") is not None:
            ledger = body["privacy"]
            spent = tuple((float(n), float(q), int(s)) for n, q, s in ledger["spent"])
            epsilon, delta, clip_norm = (float(ledger[name]) for name in ("epsilon", "delta", "clip_norm"))
            body["privacy"] = PrivacyLedger(epsilon, delta, clip_norm, spent)
        # A field that came later has its default in what was signed before.
        return AdapterManifest(**{name: body[name] for name in AdapterManifest.__dataclass_fields__ if name in body})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AdapterRefused("malformed", f"manifest: {error!r}") from error


def _batch(entry: dict[str, Any]) -> TrainedBatch:
    new, rehearsed = (
        tuple((int(p), int(o), int(n), int(w)) for p, o, n, w in entry[name]) for name in ("new", "rehearsed")
    )
    return TrainedBatch(new, rehearsed, tuple(str(tool) for tool in entry["stale"]))


def verify_pointer(data: bytes, trusted: PublicKeys) -> AdapterPointer:
    """The pointer in `data` if a trusted key signed it. Raises AdapterRefused."""
    _verify(data, trusted)
    return _pointer(data)


@lru_cache(maxsize=64)
def _pointer(data: bytes) -> AdapterPointer:
    body = orjson.loads(data)
    try:
        pointer = AdapterPointer(**{name: body[name] for name in AdapterPointer.__dataclass_fields__ if name in body})
    except TypeError as error:
        raise AdapterRefused("malformed", f"pointer: {error!r}") from error
    if not isinstance(pointer.epoch, int) or not isinstance(pointer.version, str):
        raise AdapterRefused("malformed", "pointer: epoch or version has the wrong type")
    return pointer


def verify_revocation(data: bytes, trusted: PublicKeys) -> Revocation:
    """The revocation in `data` if a trusted key signed it, and not the one that it revokes. Raises AdapterRefused."""
    _verify(data, trusted)
    body = orjson.loads(data)
    try:
        revocation = Revocation(**{name: body[name] for name in Revocation.__dataclass_fields__})
    except KeyError as error:
        raise AdapterRefused("malformed", f"revocation: {error!r}") from error
    if revocation.kind not in ("version", "key"):
        raise AdapterRefused("malformed", f"revocation of a {str(revocation.kind)[:20]!r}")
    if revocation.kind == "key" and revocation.what == body["key_id"]:
        raise AdapterRefused("malformed", "a key cannot revoke itself")
    return revocation


def signed_by(data: bytes) -> str:
    """Id of the key that a document names; say nothing of whether it is its signature."""
    return _heading(data)[0]


def in_cohort(agent: str, share: float) -> bool:
    """Whether an agent belongs to the share that a canary is tried on: always the same agents first, as the share grows."""
    return int.from_bytes(hashlib.sha256(f"canary/{agent}".encode()).digest()[:8], "big") < share * 2**64


def _verify(data: bytes, trusted: PublicKeys) -> None:
    key_id, schema = _heading(data)
    key = trusted.get(key_id)
    if key is None:
        raise AdapterRefused("unknown_key", key_id[:64])
    if not _signed(data, key.public_bytes_raw()):
        raise AdapterRefused("tampered", "the signature does not match")
    if schema != SCHEMA:
        raise AdapterRefused("schema", f"schema {schema}, this release reads {SCHEMA}")


@lru_cache(maxsize=256)
def _heading(data: bytes) -> tuple[str, Any]:
    """Key id and schema of a document that has a signature."""
    try:
        body = orjson.loads(data)
        base64.b64decode(body["signature"], validate=True)
        return str(body["key_id"]), body["schema"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterRefused("malformed", repr(error)) from error


@lru_cache(maxsize=256)
def _signed(data: bytes, key: bytes) -> bool:
    body = orjson.loads(data)
    signature = base64.b64decode(body.pop("signature"))
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _canonical(body))
    except InvalidSignature:
        return False
    return True


def _canonical(body: dict[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
