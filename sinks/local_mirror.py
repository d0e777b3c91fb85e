"""Keep published adapters in files, so that a broker that lost them can be refilled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetlore.files import write_whole
from fleetlore.wire.adapter_manifest import REVOKED

__all__ = ["LocalMirror"]


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
