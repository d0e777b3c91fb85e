"""Publishes adapter versions: weights, then manifest, then pointer, each acknowledged before the next.

So an agent that sees a pointer can find what it points to, and a publisher that dies in between leaves a version that
nobody runs. Publishing the same version again changes nothing.

Of two pointers with one epoch, readers follow the first. So the epoch says on what a move rests, and who moves a
channel learns from the log whether another came first: a person's decision is then made again, a trainer's is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ChannelMoved, ConfigError
from fleetlore.kafka.client import connect, disconnect, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.risk.blob_store import MAX_INLINE_BYTES, BlobStore
from fleetlore.risk.registry import RegistryView
from fleetlore.wire.adapter_manifest import (
    ADAPTER,
    CANARY,
    CHANNEL,
    REVOKED,
    AdapterManifest,
    AdapterPointer,
    Revocation,
    SigningKey,
    public_keys,
    verify_pointer,
    verify_revocation,
)
from fleetlore.wire.topics import topic
from sinks.adapter_files import LocalMirror
from sinks.signing_key import load_signing_key

KEPT_VERSIONS = 32
ADAPTER_TOPICS = ("adapters.weights", "adapters.manifests", "adapters.pointers")


class AdapterPublisher:
    """Writes the adapter topics, and the store where there is one. An async context manager.

    Every method raises BrokerUnavailable when the broker does not acknowledge within `timeout_seconds`.
    """

    def __init__(
        self,
        bootstrap: str,
        key: SigningKey,
        store: LocalMirror | None = None,
        *,
        trusted: str = "",
        blob_store: BlobStore | None = None,
        clock: Clock | None = None,
        timeout_seconds: float = 20.0,
    ) -> None:
        """trusted: public keys, base64 by comma, beside the own one: what they signed counts, so a new key goes on from an old."""
        self._bootstrap = bootstrap
        self._key = key
        self._trusted = public_keys(key.public_base64, trusted)
        self._store = store
        self._blob_store = blob_store or BlobStore("")
        self._clock = clock or SystemClock()
        self._timeout_seconds = timeout_seconds
        self._producer: AIOKafkaProducer | None = None

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None) -> AdapterPublisher:
        """With the key and the store that the settings name. Raises ConfigError when there is no key."""
        if not settings.signing_key:
            raise ConfigError("FLEETLORE_SIGNING_KEY names no file: adapters are signed, or not published at all")
        store = LocalMirror(settings.adapters_dir) if settings.adapters_dir else None
        blob_store = BlobStore(settings.weights_storage)
        key = load_signing_key(settings.signing_key)
        return cls(settings.broker, key, store, trusted=settings.public_key, blob_store=blob_store, clock=clock)

    async def __aenter__(self) -> AdapterPublisher:
        producer = make_producer(self._bootstrap, request_timeout_ms=int(self._timeout_seconds * 1000))
        try:
            await connect(producer)
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"{self._bootstrap}: {error!r}") from error
        self._producer = producer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            await disconnect(self._producer)
            self._producer = None

    async def published(self, tenant: str) -> RegistryView:
        """What the topics and the store hold, verified with the own key and the trusted ones: the newest pointer and
        what it points to.

        Raises BrokerUnavailable also when weights that lie elsewhere cannot be fetched.
        """
        registry = await self._known(tenant)
        reference = registry.elsewhere()
        if reference is not None:
            try:
                registry.fetched(reference, await asyncio.to_thread(self._blob_store.fetch, reference))
            except AdapterRefused as refusal:
                raise BrokerUnavailable(f"the weights in service are not to be had: {refusal}") from refusal
        return registry

    async def _known(self, tenant: str) -> RegistryView:
        registry = await self._on_topics(tenant)
        if self._store is not None:
            for version, (weights, manifest) in self._store.versions(tenant).items():
                _offer(registry, "adapters.weights", version.encode(), weights)
                _offer(registry, "adapters.manifests", f"{ADAPTER}/{version}".encode(), manifest)
            _offer(registry, "adapters.pointers", f"{ADAPTER}/{CHANNEL}".encode(), self._store.pointer(tenant))
            for revocation in self._store.revocations(tenant):
                _offer(registry, "adapters.pointers", REVOKED.encode(), revocation)
        return registry

    async def publish(
        self,
        weights: bytes,
        manifest: AdapterManifest,
        reason: str = "promoted",
        canary_share: float = 0.0,
        *,
        known: RegistryView | None = None,
    ) -> AdapterPointer:
        """Make a version known and point the channel to it; with a share, try it on so many of the agents first.

        Weights above 512 KiB go to the storage, and a reference to them on the topic. Raises ConfigError where there is
        none.

        known: what `published` said when this was decided (without it: what is said now). Raises ChannelMoved when a
            channel was moved since then; the version is known then, and nobody runs it.
        """
        known = known or await self._known(manifest.tenant)
        signed = self._key.sign(manifest)
        if len(weights) > MAX_INLINE_BYTES:
            reference = await asyncio.to_thread(self._blob_store.put, manifest.tenant, manifest.version, weights)
            weights = reference.to_json()
        if self._store is not None:
            self._store.save(manifest.tenant, manifest.version, weights, signed)
        await self._send(manifest.tenant, "adapters.weights", manifest.version.encode(), weights)
        await self._send(manifest.tenant, "adapters.manifests", manifest.key, signed)
        channel, share = (CANARY, canary_share) if canary_share > 0 else (CHANNEL, 1.0)
        pointer = await self.move(known, manifest.version, reason, channel=channel, share=share)
        await self._forget_old(known, manifest)
        return pointer

    async def move(
        self, known: RegistryView, version: str, reason: str, *, channel: str = CHANNEL, share: float = 1.0
    ) -> AdapterPointer:
        """Point a channel to a version, if none was moved since `known` was read. Raises ChannelMoved."""
        try:
            return await self._point(known, version, reason, channel=channel, share=share)
        except ChannelMoved:
            # The newest record of the channel is now one that nobody follows, and it is the one that compaction keeps.
            await self._insist(known.tenant, _as_it_is)
            raise

    async def rollback(
        self, tenant: str, version: str, reason: str = "rollback", pinned: bool = False
    ) -> AdapterPointer:
        """Point the channel to an older version, given by its hash or the beginning of it; a canary ends with that.

        pinned: the trainer then leaves the channel alone, until it is pointed elsewhere.

        Raises ConfigError when no such version, or more than one, is published.
        """
        return await self._insist(tenant, lambda registry: (_one_of(registry, version), reason, pinned))

    async def unpin(self, tenant: str, reason: str = "unpinned") -> AdapterPointer:
        """Let the trainer move the channel again. Raises ConfigError when there is no channel yet."""
        return await self._insist(tenant, lambda registry: (_as_it_is(registry)[0], reason, False))

    async def revoke(self, tenant: str, version: str, reason: str = "revoked") -> AdapterPointer | None:
        """Let nobody run a version any more. If it is the channel's, the newest other one takes its place; None if none
        is left.

        Raises ConfigError when no such version, or more than one, is published.
        """
        registry = await self._known(tenant)
        version = _one_of(registry, version)
        await self._revoke(tenant, "version", version, reason)
        if registry.canary is None and (registry.pointer is None or registry.pointer.version != version):
            return registry.pointer
        left = sorted((m for m in registry.versions.values() if m.version != version), key=lambda m: m.ordinal)
        stable = registry.pointer.version if registry.pointer and registry.pointer.version != version else None
        target = stable or (left[-1].version if left else None)
        return None if target is None else await self._insist(tenant, lambda _: (target, reason, False))

    async def revoke_key(self, tenant: str, key_id: str, reason: str = "revoked") -> None:
        """Let no agent believe a signing key any more, nor what it signed. Raises ConfigError for the own key."""
        if key_id == self._key.key_id:
            raise ConfigError("a key cannot revoke itself: sign with the one that takes its place")
        await self._revoke(tenant, "key", key_id, reason)

    async def _revoke(self, tenant: str, kind: str, what: str, reason: str) -> None:
        revocation = Revocation(ADAPTER, tenant, kind, what, reason, self._clock.now())
        signed = self._key.sign(revocation)
        if self._store is not None:
            self._store.revoke(tenant, kind, what, signed)
        await self._send(tenant, "adapters.pointers", revocation.key, signed)

    async def refill(self, tenant: str) -> int:
        """Send a broker what the store holds and it has lost; returns the number of versions sent."""
        if self._store is None:
            return 0
        there = await self._on_topics(tenant)
        for document in self._store.revocations(tenant):
            revocation = verify_revocation(document, self._trusted)
            await self._send(tenant, "adapters.pointers", revocation.key, document)
        missing = {v: files for v, files in self._store.versions(tenant).items() if v not in there.versions}
        for version, (weights, manifest) in missing.items():
            await self._send(tenant, "adapters.weights", version.encode(), weights)
            await self._send(tenant, "adapters.manifests", f"{ADAPTER}/{version}".encode(), manifest)
        signed = self._store.pointer(tenant)
        if signed is not None:
            pointer = verify_pointer(signed, self._trusted)
            # An older pointer must not become the newest record: compaction would keep it and drop the right one.
            if there.pointer is None or there.pointer.epoch < pointer.epoch:
                await self._send(tenant, "adapters.pointers", pointer.key, signed)
        return len(missing)

    async def _on_topics(self, tenant: str, kinds: tuple[str, ...] = ADAPTER_TOPICS) -> RegistryView:
        registry = RegistryView(tenant, self._trusted)
        names = {topic(tenant, name): name for name in kinds}
        for record in await read_to_end(self._bootstrap, names, self._timeout_seconds):
            _offer(registry, names[record.topic], record.key or b"", record.value)
        return registry

    async def _insist(self, tenant: str, decide: Callable[[RegistryView], tuple[str, str, bool]]) -> AdapterPointer:
        """Move the stable channel to what `decide` says of it (version, reason, pinned), whoever else moves it meanwhile."""
        while True:
            registry = await self._known(tenant)
            version, reason, pinned = decide(registry)
            with contextlib.suppress(ChannelMoved):
                return await self._point(registry, version, reason, pinned=pinned)

    async def _point(
        self,
        known: RegistryView,
        version: str,
        reason: str,
        *,
        channel: str = CHANNEL,
        share: float = 1.0,
        pinned: bool = False,
    ) -> AdapterPointer:
        now = self._clock.now()
        pointer = AdapterPointer(ADAPTER, channel, known.tenant, version, known.epoch + 1, reason, now, share, pinned)
        signed = self._key.sign(pointer)
        await self._send(known.tenant, "adapters.pointers", pointer.key, signed)
        there = await self._on_topics(known.tenant, ("adapters.pointers",))
        followed = there.canary if channel == CANARY else there.pointer
        if followed is None or (followed.epoch, followed.version, followed.pinned) != (pointer.epoch, version, pinned):
            raise ChannelMoved(f"the channel {channel} of tenant {known.tenant} was moved while it was being moved")
        if self._store is not None and channel == CHANNEL:  # a canary does not outlive its broker
            self._store.point(known.tenant, signed)
        return pointer

    async def _forget_old(self, registry: RegistryView, newest: AdapterManifest) -> None:
        """Compaction never drops a key by itself, and every version is a key of its own."""
        others = (manifest for manifest in registry.versions.values() if manifest.version != newest.version)
        for manifest in sorted(others, key=lambda manifest: manifest.ordinal)[: 1 - KEPT_VERSIONS]:
            if manifest.version != newest.parent:
                await self._send(registry.tenant, "adapters.manifests", manifest.key, None)
                await self._send(registry.tenant, "adapters.weights", manifest.version.encode(), None)
                if registry.reference(manifest.version) is not None:
                    await asyncio.to_thread(self._blob_store.drop, registry.tenant, manifest.version)
                if self._store is not None:
                    self._store.drop(registry.tenant, manifest.version)

    async def _send(self, tenant: str, name: str, key: bytes, value: bytes | None) -> None:
        if self._producer is None:
            raise RuntimeError("use `async with AdapterPublisher(...)`")
        try:
            await self._producer.send_and_wait(topic(tenant, name), value, key=key)
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"{name} was not acknowledged: {error!r}") from error


def _one_of(registry: RegistryView, version: str) -> str:
    matching = [known for known in registry.versions if known.startswith(version)]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} published versions begin with {version!r}")
    return matching[0]


def _as_it_is(registry: RegistryView) -> tuple[str, str, bool]:
    pointer = registry.pointer
    if pointer is None:
        raise ConfigError("nothing is published that could be pinned")
    return pointer.version, pointer.reason, pointer.pinned


def _offer(registry: RegistryView, name: str, key: bytes, value: bytes | None) -> None:
    # What every agent would refuse is no version of ours: it does not count.
    with contextlib.suppress(AdapterRefused):
        registry.take(name, key, value)
