"""Verify the records of an adapter, and keep the newest of each channel.

Each record is whole, so it is judged alone: a signed document, a line feed, and the weights that its manifest names by
hash.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Generic, cast

from msgspec import DecodeError, Meta, Struct, structs

from fleetlore.adapters.blob_store import MAX_INLINE_BYTES
from fleetlore.adapters.signatures import Document, PublicKeys, SigningKey, verify
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import CANARY, CHANNEL, REVOKED, AdapterRecord, AnyRecord, Manifest, Revocation
from fleetlore.wire.decode import json_reader

__all__ = ["AdapterView", "Release", "release_of"]

_END = b"\n"  # canonical JSON contains none


@dataclass(frozen=True, slots=True)
class Release(Generic[Manifest]):
    """A verified record. `weights` are None while they are not read: those at a URI, or known from a file alone."""

    record: AdapterRecord[Manifest]
    document: bytes = field(repr=False)
    signer: str
    weights: bytes | None = field(repr=False)

    @property
    def manifest(self) -> Manifest:
        return self.record.manifest

    @property
    def value(self) -> bytes:
        return self.document if self.record.uri else self.document + _END + (self.weights or b"")


def release_of(record: AdapterRecord[Manifest], key: SigningKey, weights: bytes | None) -> Release[Manifest]:
    return Release(record, key.sign(record), key.key_id, weights)


# Unknown keys that are remembered, those with the highest epochs. Anybody who may write to the topic names them.
_MOST_CLAIMS = 64


class _Claim(Struct):
    """An unverified epoch. The bound leaves a publisher room, as the largest epoch is 2**53 - 1."""

    key_id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    epoch: Annotated[int, Meta(ge=0, le=2**32)]


class AdapterView(Generic[Manifest]):
    """The records of one adapter of a tenant. `all_versions`: the newest of each version, as publishers need."""

    def __init__(self, kind: type[Manifest], tenant: str, trusted: PublicKeys, *, all_versions: bool = False) -> None:
        self.kind = kind
        self.tenant = tenant
        self.releases: dict[str, Release[Manifest]] = {}
        self._all_versions = all_versions
        self._mine = f"{kind.name}/".encode()
        self._trusted = dict(trusted)
        self._rank = {key_id: place for place, key_id in enumerate(trusted)}
        self._newest: dict[str, Release[Manifest]] = {}
        self._revocations: dict[bytes, tuple[Revocation, bytes, str]] = {}  # document and signer
        # By channel, the log's highest epoch so far. Reading again starts below the known epoch.
        self._log_epochs: dict[str, int] = {}
        self._claims: dict[str, int] = {}

    @property
    def stable(self) -> Release[Manifest] | None:
        return self._newest.get(CHANNEL)

    @property
    def canary(self) -> Release[Manifest] | None:
        stable, canary = self.stable, self._newest.get(CANARY)
        return None if canary is None or (stable and stable.record.epoch >= canary.record.epoch) else canary

    @property
    def epoch(self) -> int:
        """The highest epoch. The revocation of a deleted version holds its epoch, unless the signer is revoked."""
        epochs = [each.record.epoch for each in self._newest.values()]
        deleted = [each.epoch for each, _, signer in self._revocations.values() if signer in self._trusted]
        return max([*epochs, *deleted], default=0)

    @property
    def unknown_keys(self) -> dict[str, int]:
        """For publishers, the highest epoch by key that is neither trusted nor revoked."""
        return {key: epoch for key, epoch in self._claims.items() if not self._has_revoked("key", key)}

    @property
    def next_epoch(self) -> int:
        """One above all epochs. Those of unknown keys count too: agents may trust these keys."""
        return 1 + max(self.epoch, *self.unknown_keys.values(), 0)

    @property
    def versions(self) -> dict[str, Manifest]:
        return {version: each.manifest for version, each in self.releases.items() if not self.revoked(each)}

    def followed_by(self, agent: str) -> Release[Manifest] | None:
        """Return the release that an agent follows: `stable`, or a newer `canary` if the agent is in its share."""
        canary = self.canary
        return canary if canary and canary.record.is_tried_by(agent) else self.stable

    def complete(self) -> tuple[bytes, Manifest] | None:
        """Return weights and manifest of the stable version, or None if it is missing or revoked."""
        stable = self.stable
        if stable is None or stable.weights is None or self.revoked(stable):
            return None
        return stable.weights, stable.manifest

    def revoked(self, release: Release[Manifest]) -> bool:
        """Return whether the version or the key that signed it is revoked."""
        return self.is_revoked(release.record.version) or release.signer not in self._trusted

    def is_revoked(self, version: str) -> bool:
        return self._has_revoked("version", version)

    def _has_revoked(self, kind: str, what: str) -> bool:
        return f"{REVOKED}{kind}/{what}".encode() in self._revocations

    def as_next(self, manifest: Manifest) -> Manifest:
        ordinal = 1 + max((known.ordinal for known in self.versions.values()), default=0)
        parent = self.stable.record.version if self.stable and not self.revoked(self.stable) else None
        return structs.replace(manifest, ordinal=ordinal, parent=parent)

    def fetched(self, weights: bytes) -> None:
        """Add the verified weights of the stable version."""
        if self.stable is not None:
            self._newest[CHANNEL] = replace(self.stable, weights=weights)

    def expect_log(self) -> None:
        """Expect the log from its beginning: repeated older epochs are then no attack."""
        self._log_epochs.clear()

    def frozen(self) -> Iterator[tuple[bytes, AdapterRefused]]:
        """Yield, at the end of the log, the channels (key, refusal) whose log epoch is below the known one; each
        once."""
        for newest in (self.stable, self.canary):
            # The record of a revoked version may be deleted.
            if newest is None or self.revoked(newest):
                continue
            channel, known = newest.record.channel, newest.record.epoch
            if (epoch := self._log_epochs.get(channel, known)) < known:
                self._log_epochs[channel] = known
                yield newest.record.key, AdapterRefused("stale", f"the log ends at epoch {epoch}, after {known}")

    def documents(self) -> dict[bytes, bytes]:
        newest = {self._mine + channel.encode(): each.document for channel, each in self._newest.items()}
        return self.revocations() | newest  # a revoked key may have signed the highest epoch

    def revocations(self) -> dict[bytes, bytes]:
        return {key: value for key, (_, value, _) in self._revocations.items()}

    def remember(self, key: bytes, document: bytes) -> None:
        """Add a document of this host. Its weights come from the log. Raises AdapterRefused."""
        if key.startswith(REVOKED.encode()):
            self._revoke(document)
        elif key.startswith(self._mine):
            release = self._verified_release(document)
            newest = self._newest.get(release.record.channel)
            if newest is None or newest.record.epoch < release.record.epoch:
                self._newest[release.record.channel] = release

    def take(self, key: bytes, value: bytes | None) -> None:
        """Add a record. Raises AdapterRefused, and then no agent runs it."""
        if key.startswith(REVOKED.encode()):
            if value is not None:  # revocations are final
                self._revoke(value)
        elif key.startswith(self._mine):
            if value is None:
                self._forget(key.decode(errors="replace").removeprefix(f"{self.kind.name}/"))
            else:
                self._follow(self._read(key, value))

    def _forget(self, version: str) -> None:
        """A tombstone is unsigned, so it drops no version that a channel runs."""
        release = self.releases.get(version)
        followed = [each.record.version for each in (self.stable, self.canary) if each is not None]
        if release is not None and (self.revoked(release) or version not in followed):
            del self.releases[version]

    def _read(self, key: bytes, value: bytes) -> Release[Manifest]:
        document, _, weights = value.partition(_END)
        release = self._verified_release(document)
        if release.record.key != key:
            raise AdapterRefused("tampered", "a version under the key of another")
        if release.record.uri:
            return release
        if len(weights) > min(MAX_INLINE_BYTES, self.kind.most_bytes):
            raise AdapterRefused("oversized", f"{len(weights)} bytes of weights")
        if hashlib.sha256(weights).hexdigest() != release.record.version:
            is_cut = len(weights) < release.manifest.size_bytes
            raise AdapterRefused("truncated" if is_cut else "tampered", f"weights of {release.record.version[:12]}")
        return replace(release, weights=weights)

    def _follow(self, release: Release[Manifest]) -> None:
        channel, epoch, version = release.record.channel, release.record.epoch, release.record.version
        if channel not in (CHANNEL, CANARY):
            return
        known = self.releases.get(version)
        if self._all_versions and (known is None or self.revoked(known) or known.record.epoch < epoch):
            self.releases.pop(version, None)
            self.releases[version] = release  # in the order of the log
        shown = self._log_epochs.get(channel, -1)
        self._log_epochs[channel] = max(shown, epoch)
        newest = self._newest.get(channel)
        if newest is None or newest.record.epoch < epoch or newest.document == release.document:
            self._newest[channel] = release
        elif epoch != newest.record.epoch and epoch <= shown:
            # The other publisher of an epoch came second. A log that is read again is before what this host knows.
            raise AdapterRefused("stale", f"epoch {epoch} after {newest.record.epoch}")

    def _revoke(self, value: bytes) -> None:
        revocation, signer = self._verified(value, Revocation)
        rank = self._rank.get(revocation.what) if revocation.kind == "key" else None
        if rank is not None and rank <= self._rank[signer]:
            raise AdapterRefused("outranked", f"the key {revocation.what[:64]} stands before the one that revokes it")
        self._revocations.setdefault(revocation.key, (revocation, value, signer))
        if revocation.kind == "key":
            self._trusted.pop(revocation.what, None)
            # Its epochs go too: a key's thief may have signed the highest.
            self._newest = {name: each for name, each in self._newest.items() if each.signer != revocation.what}
            self.releases = {name: each for name, each in self.releases.items() if each.signer != revocation.what}

    def _verified_release(self, document: bytes) -> Release[Manifest]:
        record, signer = self._verified(document, AnyRecord)
        if not isinstance(record.manifest, self.kind):
            raise AdapterRefused("malformed", f"a manifest of {record.manifest.name} as one of {self.kind.name}")
        return Release(cast("AdapterRecord[Manifest]", record), document, signer, None)

    def _verified(self, value: bytes, kind: type[Document]) -> tuple[Document, str]:
        try:
            document, signer = verify(value, self._trusted, kind)
        except AdapterRefused as refusal:
            if refusal.reason == "unknown_key" and self._all_versions:
                with suppress(DecodeError):
                    claim = json_reader(_Claim)(value)
                    self._claims[claim.key_id] = max(claim.epoch, self._claims.get(claim.key_id, 0))
                    if len(self._claims) > _MOST_CLAIMS:
                        del self._claims[min(self._claims, key=lambda key: self._claims[key])]
            raise
        if document.tenant != self.tenant:
            raise AdapterRefused("foreign", f"{kind.__name__} of tenant {document.tenant[:63]!r}")
        return document, signer
