"""Publish adapter versions: manifest, then weights, then pointer, each acknowledged before the next.

Readers drop weights without a manifest, so a pointer always leads to a whole version. A publisher that dies in between
leaves a version that no agent runs. Publishing a version again changes nothing.

Readers follow the first of two pointers with one epoch (optimistic locking). A publisher reads the log to see whether
another came first. Then a person's decision is repeated, and a trainer's is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Literal, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from fleetlore.adapters.blob_store import MAX_INLINE_BYTES, BlobStore
from fleetlore.adapters.registry import RegistryView
from fleetlore.adapters.signatures import Manifest, SigningKey, load_signing_key, public_keys
from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ChannelMoved, ConfigError
from fleetlore.files import write_whole
from fleetlore.kafka.client import connect, disconnect, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import CALLS, CANARY, CHANNEL, REVOKED, AdapterPointer, Revocation
from fleetlore.wire.topics import ADAPTER_TOPICS, topic

__all__ = ["AdapterPublisher"]

_KEY_ID = re.compile("[0-9a-f]{16}")
_KEPT_VERSIONS = 32


class AdapterPublisher(Generic[Manifest]):
    """Writes an adapter's topics, and the local store if there is one.

    `trusted`: more public keys, so that a new key continues an old one's work. Methods raise BrokerUnavailable after
    `timeout_seconds`.
    """

    def __init__(
        self,
        kind: type[Manifest],
        bootstrap: Bootstrap,
        key: SigningKey,
        store: LocalMirror | None = None,
        *,
        trusted: str = "",
        blob_store: BlobStore | None = None,
        clock: Clock | None = None,
        timeout_seconds: float = 20.0,
        kept_versions: int = _KEPT_VERSIONS,
        make_producer: Callable[..., AIOKafkaProducer] = make_producer,
    ) -> None:
        self.kind = kind
        self._bootstrap = bootstrap
        self._key = key
        self._trusted = public_keys(key.public_base64, trusted)
        stated = list(public_keys(trusted)) if trusted else []
        self._outranked_by = set(stated[: stated.index(key.key_id)] if key.key_id in stated else ())
        self._store = store
        self._blob_store = blob_store or BlobStore("")
        self._clock = clock or SystemClock()
        self._timeout_seconds = timeout_seconds
        self._kept_versions = kept_versions
        self._make_producer = make_producer
        self._producer: AIOKafkaProducer | None = None

    @classmethod
    def from_settings(cls, kind: type[Manifest], settings: Settings, clock: Clock | None = None) -> Self:
        """Make a publisher with the settings' key and store. Raises ConfigError without a key."""
        if not settings.signing_key:
            raise ConfigError("FLEETLORE_SIGNING_KEY names no file: adapters are signed, or not published at all")
        store = LocalMirror(settings.adapters_dir) if settings.adapters_dir else None
        blob_store = BlobStore(settings.weights_storage)
        key = load_signing_key(settings.signing_key)
        return cls(kind, settings.cluster, key, store, trusted=settings.public_key, blob_store=blob_store, clock=clock)

    async def __aenter__(self) -> Self:
        producer = self._make_producer(self._bootstrap, request_timeout_ms=int(self._timeout_seconds * 1000))
        try:
            await connect(producer)
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"{self._bootstrap}: {error!r}") from error
        self._producer = producer
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await disconnect(self._producer)
            self._producer = None

    async def published(self, tenant: str) -> RegistryView[Manifest]:
        """Return the verified content of topics and store: the newest pointer and its version.

        Also raises BrokerUnavailable if the blob store does not return the weights.
        """
        registry = await self._read_all(tenant)
        stable = registry.stable
        if stable is not None and (reference := registry.reference(stable.version)) is not None:
            try:
                weights = await asyncio.to_thread(self._blob_store.fetch, reference, self.kind.most_bytes)
                registry.fetched(reference, weights)
            except AdapterRefused as refusal:
                raise BrokerUnavailable(f"the weights in service cannot be fetched: {refusal}") from refusal
        return registry

    async def _read_all(self, tenant: str) -> RegistryView[Manifest]:
        registry = await self._read_topics(tenant)
        for record in self._store.records(tenant, self.kind.name) if self._store is not None else ():
            _take(registry, *record)
        return registry

    async def publish(
        self,
        weights: bytes,
        manifest: Manifest,
        reason: str = "promoted",
        canary_share: float = 0.0,
        *,
        known: RegistryView[Manifest] | None = None,
    ) -> AdapterPointer:
        """Publish a version and point the channel to it.

        With `share`, first point a canary for that share of agents. Weights above 512 KiB go to the blob store.
        `known`: result of `published` at the time of the decision. Raises ConfigError without a store, ChannelMoved if
        a channel moved since: no agent then runs it.
        """
        known = known or await self._read_all(manifest.tenant)
        signed = self._key.sign(manifest)
        if len(weights) > MAX_INLINE_BYTES:
            reference = await asyncio.to_thread(self._blob_store.put, manifest.tenant, manifest.version, weights)
            weights = reference.to_json()
        if self._store is not None:
            # Weights first: a version with a manifest is complete.
            self._store.write(f"{manifest.tenant}/{manifest.name}/{manifest.version}.weights", weights)
            self._store.write(f"{manifest.tenant}/{manifest.name}/{manifest.version}.json", signed)
        await self._send(manifest.tenant, "adapters.manifests", manifest.key, signed)
        await self._send(manifest.tenant, "adapters.weights", manifest.version.encode(), weights)
        channel, share = (CANARY, canary_share) if canary_share > 0 else (CHANNEL, 1.0)
        pointer = await self.move(known, manifest.version, reason, channel=channel, share=share)
        await self._forget_old(known, manifest)
        return pointer

    async def move(
        self, known: RegistryView[Manifest], version: str, reason: str, *, channel: str = CHANNEL, share: float = 1.0
    ) -> AdapterPointer:
        """Point a channel to a version. Raises ChannelMoved if a channel moved since `known` was read."""
        try:
            return await self._point(known, version, reason, channel=channel, share=share)
        except ChannelMoved:
            # The channel's newest record is one that no reader follows, and compaction would keep only that one.
            await self._move_stable(known.tenant, _unchanged)
            raise

    async def restate(self, tenant: str) -> None:
        """Repeat the channel's valid pointer if its newest record is invalid.

        A writer may die before it repairs that record, and compaction would keep it and drop the valid one.
        """
        key = f"{self.kind.name}/{CHANNEL}".encode()
        records = await read_to_end(self._bootstrap, [topic(tenant, "adapters.pointers")], self._timeout_seconds)
        newest = next((record.value for record in reversed(records) if record.key == key), None)
        known = await self._read_topics(tenant, ("adapters.pointers",))
        followed = next((value for _, each, value in known.records() if each == key), None)
        if followed is not None and newest != followed:
            await self._move_stable(tenant, _unchanged)

    async def matching(self, tenant: str, version: str) -> list[str]:
        return [known for known in (await self._read_all(tenant)).versions if known.startswith(version)]

    async def rollback(
        self, tenant: str, version: str, reason: str = "rollback", pinned: bool = False
    ) -> AdapterPointer:
        """Point the channel to an older version, given by a prefix of its hash.

        `pinned`: the trainer leaves it. The call model is always pinned, because its next version would undo the
        rollback in seconds. Raises ConfigError.
        """
        pinned = pinned or self.kind.name == CALLS
        return await self._move_stable(tenant, lambda registry: (_find_version(registry, version), reason, pinned))

    async def unpin(self, tenant: str, reason: str = "unpinned") -> AdapterPointer:
        """Let the trainer move the channel again. Raises ConfigError if there is no channel."""
        return await self._move_stable(tenant, lambda registry: (_unchanged(registry)[0], reason, False))

    async def revoke(self, tenant: str, version: str, reason: str = "revoked") -> AdapterPointer | None:
        """Revoke a version, so that no agent runs it.

        The newest other version replaces it on the channel. Returns None if no version is left. Raises ConfigError
        unless exactly one version matches.
        """
        registry = await self._read_all(tenant)
        version = _find_version(registry, version)
        await self._revoke(tenant, "version", version, reason)
        while True:
            # Read again: another version may have been revoked, or the channel may have moved to this one.
            registry = await self._read_all(tenant)
            stable = registry.pointer
            followed = [pointer for pointer in (stable, registry.canary) if pointer is not None]
            if not any(registry.revoked(pointer.version) for pointer in followed):
                return stable
            if stable is not None and not registry.revoked(stable.version):
                target = stable.version
            elif registry.versions:
                target = max(registry.versions.values(), key=lambda each: each.ordinal).version
            else:
                return None
            with contextlib.suppress(ChannelMoved):
                return await self._point(registry, target, reason)

    async def revoke_key(self, tenant: str, key_id: str, reason: str = "revoked") -> None:
        """Revoke a signing key and everything that it signed.

        A key outranks those after it in FLEETLORE_PUBLIC_KEY; an unlisted key outranks all. Raises ConfigError if this
        process' key does not outrank it.
        """
        if not _KEY_ID.fullmatch(key_id):
            raise ConfigError(f"{key_id!r} is no id of a key, which is 16 hex digits: `adapters show` prints it")
        if key_id == self._key.key_id:
            raise ConfigError("a key cannot revoke itself: sign with the one that takes its place")
        if key_id in self._outranked_by:
            raise ConfigError(
                f"the key {key_id} stands before {self._key.key_id} in FLEETLORE_PUBLIC_KEY, and agents let a key "
                "revoke only those after it: put the new key first there, for the agents as well"
            )
        await self._revoke(tenant, "key", key_id, reason)

    async def _revoke(self, tenant: str, kind: Literal["version", "key"], what: str, reason: str) -> None:
        revocation = Revocation(tenant, kind, what, reason, self._clock.now())
        signed = self._key.sign(revocation)
        if self._store is not None:
            self._store.write(f"{tenant}/{kind}-{what}.revoked", signed)
        await self._send(tenant, "adapters.pointers", revocation.key, signed)

    async def restore(self, tenant: str) -> int:
        """Send the broker the versions that it lost and the store has; return their number.

        Untrusted and revoked versions are not sent: a revoked one may hold erased data.
        """
        if self._store is None:
            return 0
        there, known = await self._read_topics(tenant), await self._read_all(tenant)
        had, versions = set(there.records()), known.versions.keys() - there.versions.keys()
        lost = [(name, key, value) for name, key, value in known.records() if (name, key, value) not in had]
        revocations = [record for record in lost if record[1].startswith(REVOKED.encode())]
        # A version must be complete before its pointer.
        parts = [
            record
            for kind in ("adapters.manifests", "adapters.weights")
            for record in lost
            if record[0] == kind and record[1].decode().rpartition("/")[2] in versions
        ]
        # If `known` has a channel's pointer, it is newer: compaction would keep an older one sent now.
        pointers = [record for record in lost if record[0] == "adapters.pointers" and record not in revocations]
        for record in (*revocations, *parts, *pointers):
            await self._send(tenant, *record)
        return len(versions)

    async def _read_topics(self, tenant: str, kinds: tuple[str, ...] = ADAPTER_TOPICS) -> RegistryView[Manifest]:
        registry = RegistryView(self.kind, tenant, self._trusted)
        names = {topic(tenant, name): name for name in kinds}
        records = await read_to_end(self._bootstrap, names, self._timeout_seconds)
        for record in sorted(records, key=lambda record: names[record.topic] == "adapters.weights"):
            _take(registry, names[record.topic], record.key or b"", record.value)
        return registry

    async def _move_stable(
        self, tenant: str, decide: Callable[[RegistryView[Manifest]], tuple[str, str, bool]]
    ) -> AdapterPointer:
        while True:
            registry = await self._read_all(tenant)
            version, reason, pinned = decide(registry)
            with contextlib.suppress(ChannelMoved):
                return await self._point(registry, version, reason, pinned=pinned)

    async def _point(
        self,
        known: RegistryView[Manifest],
        version: str,
        reason: str,
        *,
        channel: str = CHANNEL,
        share: float = 1.0,
        pinned: bool = False,
    ) -> AdapterPointer:
        name, tenant, now = self.kind.name, known.tenant, self._clock.now()
        pointer = AdapterPointer(name, channel, tenant, version, known.epoch + 1, reason, now, share, pinned)
        signed = self._key.sign(pointer)
        await self._send(known.tenant, "adapters.pointers", pointer.key, signed)
        there = await self._read_topics(known.tenant, ("adapters.pointers",))
        followed = there.canary if channel == CANARY else there.pointer
        if followed is None or (followed.epoch, followed.version, followed.pinned) != (pointer.epoch, version, pinned):
            raise ChannelMoved(f"the channel {channel} of tenant {known.tenant} was moved while it was being moved")
        if self._store is not None and channel == CHANNEL:  # a canary does not outlive its broker
            self._store.write(f"{known.tenant}/{self.kind.name}/{CHANNEL}.pointer", signed)
        return pointer

    async def _forget_old(self, registry: RegistryView[Manifest], newest: Manifest) -> None:
        """Delete old versions. Each version is its own key, which compaction never drops."""
        others = (manifest for manifest in registry.versions.values() if manifest.version != newest.version)
        for manifest in sorted(others, key=lambda manifest: manifest.ordinal)[: 1 - self._kept_versions]:
            if manifest.version != newest.parent:
                await self.delete(registry, manifest)

    async def delete(self, registry: RegistryView[Manifest], manifest: Manifest) -> None:
        """Delete a version from topics and stores. Its revocation stays."""
        await self._send(registry.tenant, "adapters.manifests", manifest.key, None)
        await self._send(registry.tenant, "adapters.weights", manifest.version.encode(), None)
        if registry.reference(manifest.version) is not None:
            await asyncio.to_thread(self._blob_store.drop, registry.tenant, manifest.version)
        if self._store is not None:
            self._store.drop(registry.tenant, self.kind.name, manifest.version)

    async def _send(self, tenant: str, name: str, key: bytes, value: bytes | None) -> None:
        if self._producer is None:
            raise RuntimeError("use `async with AdapterPublisher(...)`")
        try:
            # An idempotent producer retries without end.
            async with asyncio.timeout(self._timeout_seconds):
                await self._producer.send_and_wait(topic(tenant, name), value, key=key)
        except (KafkaError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"{name} was not acknowledged: {error!r}") from error


def _find_version(registry: RegistryView[Manifest], version: str) -> str:
    matching = [known for known in registry.versions if known.startswith(version)]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} published versions begin with {version!r}")
    return matching[0]


def _unchanged(registry: RegistryView[Manifest]) -> tuple[str, str, bool]:
    pointer = registry.pointer
    if pointer is None:
        raise ConfigError("nothing is published that could be pinned")
    return pointer.version, pointer.reason, pointer.pinned


def _take(registry: RegistryView[Manifest], name: str, key: bytes, value: bytes | None) -> None:
    # Agents would refuse it, so it is no version.
    with contextlib.suppress(AdapterRefused):
        registry.take(name, key, value)


class LocalMirror:
    """Published versions as files of one process.

        FOLDER/TENANT/ADAPTER/VERSION.weights   the weights as on the topic: themselves or a reference
        FOLDER/TENANT/ADAPTER/VERSION.json      the signed manifest
        FOLDER/TENANT/ADAPTER/CHANNEL.pointer   the signed pointer
        FOLDER/TENANT/KIND-WHAT.revoked         a signed revocation

    Files are private to the owner and written atomically.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def records(self, tenant: str, adapter: str) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield all (topic, key, value), unverified. Skip versions without a manifest."""
        folder = self.folder / tenant / adapter
        for manifest in sorted(folder.glob("*.json")):
            yield "adapters.manifests", f"{adapter}/{manifest.stem}".encode(), manifest.read_bytes()
            yield "adapters.weights", manifest.stem.encode(), manifest.with_suffix(".weights").read_bytes()
        for pointer in folder.glob("*.pointer"):
            yield "adapters.pointers", f"{adapter}/{pointer.stem}".encode(), pointer.read_bytes()
        for revocation in sorted(folder.parent.glob("*.revoked")):
            yield "adapters.pointers", REVOKED.encode(), revocation.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        file = self.folder / name
        for folder in reversed((file.parent, *file.parent.parents)):
            if not folder.exists():
                folder.mkdir(exist_ok=True, mode=0o700)  # `parents=True` would create parents with the umask's mode
        write_whole(file, data)

    def drop(self, tenant: str, adapter: str, version: str) -> None:
        for suffix in ("json", "weights"):
            (self.folder / tenant / adapter / f"{version}.{suffix}").unlink(missing_ok=True)
