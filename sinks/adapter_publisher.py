"""Publish adapter versions. One record holds a version and its channel, so none is ever half published.

Readers follow the first of two records with one epoch (optimistic locking). A publisher reads the log to see whether
another came first. If so, a person's decision is repeated, and a trainer's dropped.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Literal, Self

from msgspec import structs

from fleetlore.adapters.blob_store import MAX_INLINE_BYTES, BlobStore
from fleetlore.adapters.signatures import SigningKey, load_signing_key, public_keys
from fleetlore.adapters.view import AdapterView, Release, release_of
from fleetlore.clock import SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ChannelMoved, ConfigError
from fleetlore.files import write_whole
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import CALLS, CANARY, CHANNEL, REVOKED, AdapterRecord, Manifest, Revocation
from fleetlore.wire.topics import topic
from sinks.producer import BatchProducer, Outgoing

__all__ = ["AdapterPublisher"]

log = logging.getLogger(__name__)

_KEY_ID = re.compile("[0-9a-f]{16}")
_KEPT_VERSIONS = 32


class LocalMirror:
    """Published versions as files of one process.

        FOLDER/TENANT/ADAPTER/VERSION.record    the record as on the topic
        FOLDER/TENANT/KIND-WHAT.revoked         a signed revocation

    Files are private to the owner and written atomically.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def records(self, tenant: str, adapter: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value), unverified."""
        folder = self.folder / tenant / adapter
        for record in sorted(folder.glob("*.record")):
            yield f"{adapter}/{record.stem}".encode(), record.read_bytes()
        for revocation in sorted(folder.parent.glob("*.revoked")):
            yield REVOKED.encode(), revocation.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        file = self.folder / name
        for folder in reversed((file.parent, *file.parent.parents)):
            if not folder.exists():
                folder.mkdir(exist_ok=True, mode=0o700)  # `parents=True` would create parents with the umask's mode
        write_whole(file, data)

    def drop(self, tenant: str, adapter: str, version: str) -> None:
        (self.folder / tenant / adapter / f"{version}.record").unlink(missing_ok=True)


@dataclass(eq=False, repr=False)
class AdapterPublisher(Generic[Manifest]):
    """Writes an adapter's records, and the local store if there is one.

    `trusted`: more public keys: a new key continues an old one's work. Methods raise BrokerUnavailable after
    `timeout_seconds`.
    """

    kind: type[Manifest]
    bootstrap: Bootstrap
    key: SigningKey
    store: LocalMirror | None = None
    _: KW_ONLY
    trusted: str = ""
    blob_store: BlobStore = field(default_factory=partial(BlobStore, ""))
    timeout_seconds: float = 20.0
    kept_versions: int = _KEPT_VERSIONS
    make_producer: Callable[..., BatchProducer] = BatchProducer

    def __post_init__(self) -> None:
        self._trusted = public_keys(self.key.public_base64, self.trusted)
        stated = list(public_keys(self.trusted)) if self.trusted else []
        self._outranked_by = set(stated[: stated.index(self.key.key_id)] if self.key.key_id in stated else ())
        self._clock = SystemClock()
        self._producer = self.make_producer(self.bootstrap, delivery_seconds=self.timeout_seconds)
        self._warned = False

    @classmethod
    def from_settings(cls, kind: type[Manifest], settings: Settings) -> Self:
        """Raises ConfigError without a key."""
        if not settings.signing_key:
            raise ConfigError("FLEETLORE_SIGNING_KEY names no file: adapters are signed, or not published at all")
        store = LocalMirror(settings.adapters_dir) if settings.adapters_dir else None
        blob_store = BlobStore(settings.weights_storage)
        key = load_signing_key(settings.signing_key)
        return cls(kind, settings.cluster, key, store, trusted=settings.public_key, blob_store=blob_store)

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def published(self, tenant: str) -> AdapterView[Manifest]:
        """Return the verified content of topic and store, with the weights in service.

        Raises BrokerUnavailable also if the blob store does not return the weights.
        """
        known = await self._read_all(tenant)
        stable = known.stable
        if stable is not None and stable.record.uri and not known.revoked(stable):
            try:
                fetched = await asyncio.to_thread(self.blob_store.fetch, stable.record.uri, stable.manifest)
            except AdapterRefused as refusal:
                raise BrokerUnavailable(f"the weights in service cannot be fetched: {refusal}") from refusal
            known.fetched(fetched)
        return known

    async def publish(
        self,
        weights: bytes,
        manifest: Manifest,
        reason: str = "promoted",
        canary_share: float = 0.0,
        *,
        known: AdapterView[Manifest] | None = None,
    ) -> AdapterRecord[Manifest]:
        """Publish a version on the channel `stable`, or first as a canary for a share of the agents.

        Weights above 512 KiB go to the blob store. `known`: `published` at the time of the decision. Raises ConfigError
        without a store or if agents refuse weights of this size, ChannelMoved if a channel moved since: no agent then
        runs it.
        """
        if len(weights) > self.kind.most_bytes:
            raise ConfigError(f"agents refuse weights of {len(weights)} bytes: {self.kind.most_bytes} are the most")
        known = known or await self._read_all(manifest.tenant)
        uri = ""
        if len(weights) > MAX_INLINE_BYTES:
            uri = await asyncio.to_thread(self.blob_store.put, manifest.tenant, manifest.version, weights)
        # A canary of the version in service would replace the record that puts it there.
        is_canary = canary_share > 0 and (known.stable is None or known.stable.record.version != manifest.version)
        record = AdapterRecord(
            manifest=manifest,
            channel=CANARY if is_canary else CHANNEL,
            epoch=known.next_epoch,
            reason=reason,
            created=self._clock.now(),
            share=canary_share if is_canary else 1.0,
            uri=uri,
        )
        await self._put(known, release_of(record, self.key, None if uri else weights))
        # Delete old versions. Each has its own key, so compaction never drops it.
        others = (each for each in known.versions.values() if each.version != manifest.version)
        for old in sorted(others, key=lambda each: each.ordinal)[: 1 - self.kept_versions]:
            if old.version != manifest.parent:
                await self.delete(known, old.version)
        return record

    async def matching(self, tenant: str, version: str) -> list[str]:
        return _matching(await self._read_all(tenant), version)

    async def rollback(
        self, tenant: str, version: str, reason: str = "rollback", pinned: bool = False
    ) -> AdapterRecord[Manifest]:
        """Point the channel to an older version, given by a prefix of its hash.

        `pinned`: the trainer leaves it. The call model is always pinned: its next version would undo this in seconds.
        Raises ConfigError.
        """
        pinned = pinned or self.kind.name == CALLS
        return await self._decide(tenant, lambda known: (_find_version(known, version), reason, pinned))

    async def unpin(self, tenant: str, reason: str = "unpinned") -> AdapterRecord[Manifest]:
        """Let the trainer move the channel again. Raises ConfigError if there is no channel."""
        return await self._decide(tenant, lambda known: (_unchanged(known)[0], reason, False))

    async def revoke(self, tenant: str, version: str, reason: str = "revoked") -> AdapterRecord[Manifest] | None:
        """Revoke a version: no agent runs it any more.

        The newest other version replaces it. Returns None if none is left. Raises ConfigError unless exactly one
        version matches.
        """
        known = await self._read_all(tenant)
        version = _find_version(known, version)
        await self._revoke(tenant, "version", version, reason, known.releases[version].record.epoch)
        while True:
            # Read again: another version may be revoked by now, or the channel moved to this one.
            known = await self._read_all(tenant)
            stable = known.stable
            if not any(known.revoked(each) for each in (stable, known.canary) if each is not None):
                return stable.record if stable is not None else None
            if stable is not None and not known.revoked(stable):
                target = stable.record.version
            elif known.versions:
                target = max(known.versions.values(), key=lambda each: each.ordinal).version
            else:
                return None
            with contextlib.suppress(ChannelMoved):
                return await self.move(known, target, reason)

    async def revoke_key(self, tenant: str, key_id: str, reason: str = "revoked") -> None:
        """Revoke a signing key and everything that it signed.

        A key outranks those after it in FLEETLORE_PUBLIC_KEY; an unlisted key outranks all. Raises ConfigError if this
        process' key does not outrank it.
        """
        if not _KEY_ID.fullmatch(key_id):
            raise ConfigError(f"{key_id!r} is no id of a key, which is 16 hex digits: `adapters show` prints it")
        if key_id == self.key.key_id:
            raise ConfigError("a key cannot revoke itself: sign with the one that takes its place")
        if key_id in self._outranked_by:
            raise ConfigError(
                f"the key {key_id} stands before {self.key.key_id} in FLEETLORE_PUBLIC_KEY, and agents let a key "
                "revoke only those after it: put the new key first there, for the agents as well"
            )
        await self._revoke(tenant, "key", key_id, reason)

    async def _revoke(
        self, tenant: str, kind: Literal["version", "key"], what: str, reason: str, epoch: int = 0
    ) -> None:
        revocation = Revocation(tenant, kind, what, reason, self._clock.now(), epoch)
        signed = self.key.sign(revocation)
        if self.store is not None:
            self.store.write(f"{tenant}/{kind}-{what}.revoked", signed)
        await self._send(tenant, revocation.key, signed)

    async def restore(self, tenant: str) -> int:
        """Send the broker the versions that only the store has; return their number.

        Untrusted and revoked versions are not sent: a revoked one may hold erased data.
        """
        if self.store is None:
            return 0
        there, known = await self._read_topic(tenant), await self._read_all(tenant)
        for key, value in known.revocations().items():
            if key not in there.revocations():
                await self._send(tenant, key, value)
        # In order of publication: readers refuse an older record after a newer one.
        lost = sorted(known.releases.values(), key=lambda each: each.record.epoch)
        lost = [each for each in lost if each.record.epoch > there.epoch and not known.revoked(each)]
        for each in lost:
            await self._send(tenant, each.record.key, each.value)
        return len(lost)

    async def _read_topic(self, tenant: str) -> AdapterView[Manifest]:
        view = AdapterView(self.kind, tenant, self._trusted, all_versions=True)
        for record in await read_to_end(self.bootstrap, [topic(tenant, "adapters")], self.timeout_seconds):
            _take(view, record.key or b"", record.value)
        if (unknown := view.unknown_keys) and not self._warned:
            self._warned = True
            log.warning(
                "tenant %s has versions of the key %s, which FLEETLORE_PUBLIC_KEY does not name: this process does not "
                "see them, and publishes its next version above them. Add the public key there, after this process' "
                "own, or revoke it with `fleetlore adapters revoke-key`",
                tenant,
                max(unknown, key=unknown.__getitem__),
            )
        return view

    async def _read_all(self, tenant: str) -> AdapterView[Manifest]:
        view = await self._read_topic(tenant)
        for key, value in self.store.records(tenant, self.kind.name) if self.store is not None else ():
            _take(view, key, value)
        return view

    async def _decide(
        self, tenant: str, decide: Callable[[AdapterView[Manifest]], tuple[str, str, bool]]
    ) -> AdapterRecord[Manifest]:
        while True:
            known = await self._read_all(tenant)
            version, reason, pinned = decide(known)
            with contextlib.suppress(ChannelMoved):
                return await self.move(known, version, reason, pinned=pinned)

    async def move(
        self, known: AdapterView[Manifest], version: str, reason: str, *, pinned: bool = False
    ) -> AdapterRecord[Manifest]:
        """Point the channel to a known version. Raises ChannelMoved if a channel moved since `known` was read."""
        old, epoch, now = known.releases.get(version), known.next_epoch, self._clock.now()
        if old is None:
            raise ChannelMoved(f"version {version[:12]} of tenant {known.tenant} was deleted")
        record = structs.replace(
            old.record, channel=CHANNEL, epoch=epoch, reason=reason, created=now, share=1.0, pinned=pinned
        )
        await self._put(known, release_of(record, self.key, old.weights))
        return record

    async def _put(self, known: AdapterView[Manifest], release: Release[Manifest]) -> None:
        record = release.record
        await self._send(record.tenant, record.key, release.value)
        there = await self._read_topic(record.tenant)
        running = {CHANNEL: there.stable, CANARY: there.canary}
        newest = running[record.channel]
        decided = record.epoch, record.version, record.pinned
        if newest is None or (newest.record.epoch, newest.record.version, newest.record.pinned) != decided:
            # Compaction keeps only this, the key's newest record.
            if record.version in {each.record.version for each in running.values() if each is not None}:
                await self._decide(record.tenant, _unchanged)
            elif record.version not in known.releases:
                await self._send(record.tenant, record.key, None)
            raise ChannelMoved(
                f"the channel {record.channel} of tenant {record.tenant} was moved while it was being moved"
            )
        if self.store is not None:
            self.store.write(f"{record.tenant}/{self.kind.name}/{record.version}.record", release.value)

    async def delete(self, known: AdapterView[Manifest], version: str) -> None:
        """Delete a version from topic and stores. Its revocation stays."""
        record = known.releases[version].record
        await self._send(known.tenant, record.key, None)
        if record.uri:
            await asyncio.to_thread(self.blob_store.drop, known.tenant, version)
        if self.store is not None:
            self.store.drop(known.tenant, self.kind.name, version)

    async def _send(self, tenant: str, key: bytes, value: bytes | None) -> None:
        await self._producer.deliver([Outgoing(tenant, "adapters", key.decode(), value)])


def _matching(known: AdapterView[Manifest], version: str) -> list[str]:
    """An empty `version` (an unset variable of a script) matches none, and not the only one."""
    return [each for each in known.versions if version and each.startswith(version)]


def _find_version(known: AdapterView[Manifest], version: str) -> str:
    matching = _matching(known, version)
    if len(matching) != 1:
        raise ConfigError(f"{len(matching) or 'no'} published versions begin with {version!r}")
    return matching[0]


def _unchanged(known: AdapterView[Manifest]) -> tuple[str, str, bool]:
    stable = known.stable
    if stable is None or stable.record.version not in known.releases:
        raise ConfigError("nothing is published that could be pinned")
    return stable.record.version, stable.record.reason, stable.record.pinned


def _take(view: AdapterView[Manifest], key: bytes, value: bytes | None) -> None:
    # Agents would refuse it.
    with contextlib.suppress(AdapterRefused):
        view.take(key, value)
