"""Describe adapters on the log: the record that puts a version into service, and the revocation.

The adapter `calls` is the call model that every agent runs. `llm` is a LoRA over the agents' own language model, from
any trainer.

Each is canonical JSON (sorted keys) under one Ed25519 signature (`fleetlore.adapters.signatures`).
"""

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

import msgspec

from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Count

SCHEMA = 1
CALLS = "calls"
LANGUAGE_MODEL = "llm"
CHANNEL = "stable"
CANARY = "canary"
REVOKED = "revoked/"
# The call before this one, as the model sees it.
State = Literal["first", "after_success", "after_failure"]


@dataclass(frozen=True, slots=True)
class DataRange:
    """Records [start, stop) of one partition that a version was offered and its parent was not."""

    topic: str
    partition: int
    start: int
    stop: int


class AdapterManifest(msgspec.Struct, frozen=True, kw_only=True, tag_field="name"):
    """One immutable version of an adapter.

    Attributes:
        version: sha256 of the weights; `ordinal` counts versions for people.
        parent: the version then in service.
        data, sessions, agents: what it learned from; `agents` is only a number.
        tools: those whose calls it may judge.
        metrics: the gate's figures.
        created: Unix seconds.
        most_bytes: limit of the weights.
    """

    name: ClassVar[str]
    most_bytes: ClassVar[int] = 16 * 1024 * 1024
    version: str
    ordinal: int
    parent: str | None
    tenant: str
    size_bytes: int
    data: tuple[DataRange, ...]
    sessions: int
    agents: int
    tools: tuple[str, ...]
    metrics: dict[str, float]
    created: float
    schema: int = SCHEMA


class CallsManifest(AdapterManifest, frozen=True, kw_only=True, tag=CALLS):
    """A version of the call model, learned from all of `data` and reproducible from it."""

    name: ClassVar[str] = CALLS
    most_bytes: ClassVar[int] = 200 * 1024
    calls: int


class LanguageModelManifest(AdapterManifest, frozen=True, kw_only=True, tag=LANGUAGE_MODEL):
    """A LoRA of the trainer, or one that `fleetlore adapters publish-llm` checked.

    Attributes:
        base: served name of the language model.
        architecture: as transformers and llama.cpp name it (`qwen2`); empty if unknown.
        base_sha256: hash of the model's weights (`fleetlore.lora.adapter.base_of`).
        rank, alpha, rank_stabilized: of the LoRA; the scale is alpha / rank, or alpha / sqrt(rank).
        targets: sorted names of changed modules.
        tensors: shapes by name.
        gate_sha256: hash of the report that permitted publication.
        learned_from: hashes (`fleetlore.wire.stats.stable_hash`) of its dataset's sessions: base64 of sorted
            little-endian 64-bit integers; empty if unstated.
    """

    name: ClassVar[str] = LANGUAGE_MODEL
    most_bytes: ClassVar[int] = 512 * 1024 * 1024
    base: str
    base_sha256: str
    rank: int
    alpha: float
    rank_stabilized: bool
    targets: tuple[str, ...]
    tensors: dict[str, tuple[int, ...]]
    gate_sha256: str
    learned_from: str = ""
    architecture: str = ""


ADAPTERS: tuple[type[AdapterManifest], ...] = (CallsManifest, LanguageModelManifest)
Manifest = TypeVar("Manifest", bound=AdapterManifest)


class AdapterRecord(msgspec.Struct, Generic[Manifest], frozen=True, kw_only=True):
    """A version and the channel that runs it. The weights follow the signed document, or are at `uri`.

    The higher epoch of a channel wins. A rollback is an older version with a new epoch.

    Attributes:
        epoch: counts over all channels of an adapter.
        share: of agents that follow `canary` while it is newer than `stable`.
        pinned: the trainer leaves the channel alone.
        uri: of weights that do not fit into a record.
    """

    manifest: Manifest
    channel: str
    epoch: Count
    reason: str
    created: float
    share: float = 1.0
    pinned: bool = False
    uri: str = ""
    schema: int = SCHEMA

    @property
    def tenant(self) -> str:
        return self.manifest.tenant

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def key(self) -> bytes:
        return f"{self.manifest.name}/{self.version}".encode()

    def is_tried_by(self, agent: str) -> bool:
        return in_cohort(agent, self.share, self.version)


AnyRecord = AdapterRecord[CallsManifest | LanguageModelManifest]


@dataclass(frozen=True, slots=True)
class Revocation:
    """A version that no agent may run, or a key that none may trust, ever again.

    Attributes:
        kind: `version` or `key`. A key cannot revoke itself.
        what: sha256 of the weights, or the key's id.
        epoch: of the version's last record, which may be deleted. Later records have a higher one.
    """

    tenant: str
    kind: Literal["version", "key"]
    what: str
    reason: str
    created: float
    epoch: Count = 0
    schema: int = SCHEMA

    @property
    def key(self) -> bytes:
        return f"{REVOKED}{self.kind}/{self.what}".encode()


def in_cohort(agent: str, share: float, version: str) -> bool:
    """Say whether an agent tries this version.

    A larger share keeps a smaller one's agents. A principal's agents all try it or none. Each version draws other
    agents, so one that rejects all is rarely asked. SHA-256, because agents in other languages draw it too
    (docs/reference/adapters.md).
    """
    drawn = f"canary/{version}/{principal_of(agent)}"
    return int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:8], "big") < share * 2**64
