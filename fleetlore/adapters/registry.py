"""Collect an adapter's records of the three topics, and name the version to run.

Only verified records are kept: documents by their signature, weights by the hash in a signed manifest. A tombstone is
unsigned, so it cannot delete what a channel points to. `complete()` returns a version once all its parts are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from msgspec.structs import replace

from fleetlore.adapters.blob_store import MAX_INLINE_BYTES, WeightsReference, parse_reference, sha256_of
from fleetlore.adapters.signatures import Document, Manifest, PublicKeys, verify
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import CANARY, CHANNEL, REVOKED, AdapterPointer, Revocation, in_cohort

KEPT_VERSIONS = 64


class RegistryView(Generic[Manifest]):
    """Weights by hash, manifests by version, and the newest pointers of one adapter of a tenant. kind: class of the
    manifests; records of other adapters are skipped."""

    def __init__(self, kind: type[Manifest], tenant: str, trusted: PublicKeys) -> None:
        self.kind = kind
        self.tenant = tenant
        self._mine = f"{kind.name}/".encode()
        self._trusted = dict(trusted)
        self._rank = {key_id: place for place, key_id in enumerate(trusted)}
        self._pointers: dict[str, AdapterPointer] = {}
        # Key id and document of manifests by version and of pointers by channel.
        self._signed: dict[str, tuple[str, bytes]] = {}
        self._revocations: dict[bytes, bytes] = {}
        self._revoked: set[str] = set()
        self._disowned: set[str] = set()  # signed only by a revoked key
        self._weights: dict[str, bytes | WeightsReference] = {}
        self._fetched: tuple[str, bytes] | None = None  # Only of one version, because fetched weights are large.
        self._manifests: dict[str, Manifest] = {}
        self._seen: set[tuple[int, str]] = set()
        # By channel, the highest epoch read from the log. It is below the known epoch while the log is read again.
        self._log_epochs: dict[str, int] = {}

    def followed_by(self, agent: str) -> AdapterPointer | None:
        """Return the pointer that an agent follows: `stable`, or a newer `canary` if the agent is in its share."""
        canary = self.canary
        return canary if canary is not None and in_cohort(agent, canary.share, canary.version) else self.pointer

    @property
    def pointer(self) -> AdapterPointer | None:
        return self._pointers.get(CHANNEL)

    @property
    def canary(self) -> AdapterPointer | None:
        stable, canary = self._pointers.get(CHANNEL), self._pointers.get(CANARY)
        return None if canary is None or (stable is not None and stable.epoch >= canary.epoch) else canary

    @property
    def epoch(self) -> int:
        return max((pointer.epoch for pointer in self._pointers.values()), default=0)

    def revoked(self, version: str) -> bool:
        return version in self._revoked or version in self._disowned

    @property
    def kept(self) -> dict[str, Manifest]:
        """Manifests whose weights are read too, including revoked ones."""
        return {version: manifest for version, manifest in self._manifests.items() if version in self._weights}

    @property
    def versions(self) -> dict[str, Manifest]:
        return {version: manifest for version, manifest in self.kept.items() if not self.revoked(version)}

    def as_next(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the next ordinal, and the version in service as its parent."""
        ordinal = 1 + max((known.ordinal for known in self.versions.values()), default=0)
        return replace(manifest, ordinal=ordinal, parent=self.stable.version if self.stable is not None else None)

    def manifest(self, version: str) -> Manifest | None:
        return None if self.revoked(version) else self._manifests.get(version)

    def weights(self, version: str) -> bytes | None:
        if self._fetched is not None and self._fetched[0] == version:
            return self._fetched[1]
        weights = self._weights.get(version)
        return weights if isinstance(weights, bytes) else None

    def reference(self, version: str) -> WeightsReference | None:
        weights = self._weights.get(version)
        return weights if isinstance(weights, WeightsReference) else None

    def fetched(self, reference: WeightsReference, weights: bytes) -> None:
        """Keep the verified weights of a reference until the next ones are fetched."""
        self._fetched = reference.sha256, weights

    def expect_log(self) -> None:
        """Expect the log from its beginning: repeated older epochs are then no attack."""
        self._log_epochs.clear()

    def frozen(self) -> Iterator[tuple[bytes, AdapterRefused]]:
        """Yield, at the end of the log, the channels (key, refusal) whose log epoch is below the known one; each
        once."""
        for channel, pointer in self._pointers.items():
            if (epoch := self._log_epochs.get(channel, pointer.epoch)) < pointer.epoch:
                self._log_epochs[channel] = pointer.epoch
                yield pointer.key, AdapterRefused("stale", f"the log ends at epoch {epoch}, after {pointer.epoch}")

    def announces(self, key: bytes) -> bool:
        return key.decode(errors="replace") in self._manifests

    def pointers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the verified revocations and newest pointers (key, value)."""
        yield from self._revocations.items()
        for channel, pointer in self._pointers.items():
            yield pointer.key, self._signed[channel][1]

    def records(self) -> Iterator[tuple[str, bytes, bytes]]:
        yield from (("adapters.pointers", key, value) for key, value in self.pointers())
        for version, manifest in self._manifests.items():
            yield "adapters.manifests", manifest.key, self._signed[version][1]
        for version, weights in self._weights.items():
            value = weights.to_json() if isinstance(weights, WeightsReference) else weights
            yield "adapters.weights", version.encode(), value

    def take(self, name: str, key: bytes, value: bytes | None) -> bool:
        """Add a record of the topic `name` (`adapters.weights`, …).

        Return whether it changed anything. Raises AdapterRefused and then keeps no part of it.
        """
        if name == "adapters.weights":
            return self._take_weights(key, value)
        if name == "adapters.manifests":
            return key.startswith(self._mine) and self._take_manifest(key, value)
        if key.startswith(REVOKED.encode()):
            return self._take_revocation(value)
        return key.startswith(self._mine) and self._take_pointer(value)

    def _take_weights(self, key: bytes, value: bytes | None) -> bool:
        """Keep weights that a manifest names. Others are skipped: readers read weights again after their manifest."""
        version = key.decode(errors="replace")
        if version not in self._manifests or self._weights.get(version) == value:
            return False
        if value is None:
            return not self._is_pointed(version) and self._weights.pop(version, None) is not None
        if len(value) > MAX_INLINE_BYTES:
            raise AdapterRefused("oversized", f"{len(value)} bytes of weights")
        reference = parse_reference(value)
        if reference is not None:
            if reference.sha256 != version:
                raise AdapterRefused("tampered", f"a reference to {reference.sha256[:12]} as {version[:12]}")
            if version in self._weights and self._weights[version] in (reference, self.weights(version)):
                return False
            self._weights[version] = reference
            return True
        if sha256_of(value) != version:
            # Refuse them now, before they replace good weights under the same key.
            is_cut = len(value) < self._manifests[version].size_bytes
            raise AdapterRefused("truncated" if is_cut else "tampered", f"weights of {version[:12]}")
        self._weights[version] = value
        return True

    def _take_manifest(self, key: bytes, value: bytes | None) -> bool:
        if value is None:
            version = key.decode(errors="replace").rpartition("/")[2]
            return not self._is_pointed(version) and self._forget(version)
        manifest, signer = self._verified(value, self.kind)
        if manifest.key != key:
            raise AdapterRefused("tampered", "a manifest under the key of another")
        if self._signed.get(manifest.version, ("", b""))[1] == value:
            return False
        self._manifests[manifest.version] = manifest
        self._signed[manifest.version] = signer, value
        self._disowned.discard(manifest.version)
        if len(self._manifests) > KEPT_VERSIONS:
            self._forget(next(version for version in self._manifests if not self._is_pointed(version)))
        return True

    def _take_pointer(self, value: bytes | None) -> bool:
        if value is None:
            return False  # a channel is never emptied; a rollback is a newer pointer
        pointer, signer = self._verified(value, AdapterPointer)
        if pointer.name != self.kind.name or pointer.channel not in (CHANNEL, CANARY):
            return False
        mark, shown = (pointer.epoch, pointer.version), self._log_epochs.get(pointer.channel, -1)
        self._log_epochs[pointer.channel] = max(shown, pointer.epoch)
        if mark in self._seen:
            return False  # read again after a reconnect
        self._seen.add(mark)
        newest = self._pointers.get(pointer.channel)
        if newest is not None and shown < pointer.epoch < newest.epoch:
            return False  # the log is still before the pointer that this host knows
        if newest is not None and pointer.epoch <= newest.epoch:
            raise AdapterRefused("stale", f"epoch {pointer.epoch} after {newest.epoch}")
        self._pointers[pointer.channel] = pointer
        self._signed[pointer.channel] = signer, value
        return True

    def _take_revocation(self, value: bytes | None) -> bool:
        if value is None:
            return False  # revocations are final
        revocation, signer = self._verified(value, Revocation)
        if revocation.kind == "key" and not self._outranks(signer, revocation.what):
            raise AdapterRefused("outranked", f"the key {revocation.what[:64]} stands before the one that revokes it")
        if revocation.key in self._revocations:
            return False
        self._revocations[revocation.key] = value
        if revocation.kind == "version":
            self._revoked.add(revocation.what)
            return True
        self._trusted.pop(revocation.what, None)
        for what in [what for what, (signer, _) in self._signed.items() if signer == revocation.what]:
            if self._pointers.pop(what, None) is None:
                self._forget(what)
                self._disowned.add(what)
            self._signed.pop(what, None)
        return True

    def _verified(self, value: bytes, kind: type[Document]) -> tuple[Document, str]:
        document, signer = verify(value, self._trusted, kind)
        if document.tenant != self.tenant:
            raise AdapterRefused("foreign", f"{kind.__name__} of tenant {document.tenant[:63]!r}")
        return document, signer

    @property
    def stable(self) -> Manifest | None:
        """Manifest of the version on the channel `stable`, or None if it is missing or revoked."""
        return self.manifest(self.pointer.version) if self.pointer is not None else None

    def complete(self) -> tuple[bytes, Manifest] | None:
        """Return weights and manifest of the stable version, or None if a part is missing."""
        manifest = self.stable
        weights = self.weights(manifest.version) if manifest is not None else None
        return (weights, manifest) if manifest is not None and weights is not None else None

    def _outranks(self, signer: str, other: str) -> bool:
        return other not in self._rank or self._rank[signer] < self._rank[other]

    def _is_pointed(self, version: str) -> bool:
        return any(pointer.version == version for pointer in self._pointers.values())

    def _forget(self, version: str) -> bool:
        self._weights.pop(version, None)
        self._signed.pop(version, None)
        return self._manifests.pop(version, None) is not None
