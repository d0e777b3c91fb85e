"""Keep published adapter versions as files, so that a broker that lost them can be filled again.

    FOLDER/TENANT/ADAPTER/VERSION.weights   the weights as they are on the topic: themselves, or the reference to them
    FOLDER/TENANT/ADAPTER/VERSION.json      the signed manifest
    FOLDER/TENANT/ADAPTER/CHANNEL.pointer   the signed pointer
    FOLDER/TENANT/KIND-WHAT.revoked         a signed revocation

Only the owner may read them, and a file appears whole or not at all. The manifest of a version appears after its
weights, so a version with a manifest is complete.
"""

from __future__ import annotations

from pathlib import Path

from fleetlore.files import write_whole
from fleetlore.wire.adapter_manifest import CHANNEL


class LocalMirror:
    """A folder of versions, written by one process."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save(self, tenant: str, adapter: str, version: str, weights: bytes, manifest: bytes) -> None:
        """Keep a version."""
        self._write(self.folder / tenant / adapter / f"{version}.weights", weights)
        self._write(self.folder / tenant / adapter / f"{version}.json", manifest)

    def point(self, tenant: str, adapter: str, pointer: bytes) -> None:
        """Keep the channel's newest pointer."""
        self._write(self.folder / tenant / adapter / f"{CHANNEL}.pointer", pointer)

    def pointer(self, tenant: str, adapter: str) -> bytes | None:
        """Return the channel's newest signed pointer."""
        file = self.folder / tenant / adapter / f"{CHANNEL}.pointer"
        return file.read_bytes() if file.exists() else None

    def revoke(self, tenant: str, kind: str, what: str, revocation: bytes) -> None:
        """Keep a revocation, for ever."""
        self._write(self.folder / tenant / f"{kind}-{what}.revoked", revocation)

    def revocations(self, tenant: str) -> list[bytes]:
        """Return every signed revocation."""
        return [file.read_bytes() for file in sorted((self.folder / tenant).glob("*.revoked"))]

    def tenants(self) -> list[str]:
        """Return the tenants with at least one file."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir()) if self.folder.is_dir() else []

    def versions(self, tenant: str, adapter: str) -> dict[str, tuple[bytes, bytes]]:
        """Return weights and signed manifest of every complete version."""
        manifests = sorted((self.folder / tenant / adapter).glob("*.json"))
        return {m.stem: (m.with_suffix(".weights").read_bytes(), m.read_bytes()) for m in manifests}

    def drop(self, tenant: str, adapter: str, version: str) -> None:
        """Forget a version; the manifest goes first."""
        for suffix in ("json", "weights"):
            (self.folder / tenant / adapter / f"{version}.{suffix}").unlink(missing_ok=True)

    def _write(self, file: Path, data: bytes) -> None:
        for folder in reversed((file.parent, *file.parent.parents)):
            if not folder.exists():
                folder.mkdir(exist_ok=True, mode=0o700)  # `parents=True` would make those above by the umask
        write_whole(file, data)
