"""Store weights that are too large for a record in a shared folder or object store.

The signed record names them by URI, hash and size. A key's thief could name other files or hosts. So an agent opens
only URIs under its own root, and reads at most an adapter's size limit.
"""

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path

from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.files import write_whole
from fleetlore.wire.adapter_manifest import AdapterManifest

__all__ = ["MAX_INLINE_BYTES", "BlobStore"]

MAX_INLINE_BYTES = 512 * 1024
# File mode before the umask: agents of other users read the shared folder.
_EVERYBODY = 0o666
# No `..`, hidden file or second scheme, which could lead out of the root.
_BELOW = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")


class BlobStore:
    """The folder or object store at `root`: `file:///mnt/adapters`, `s3://bucket/adapters`, or "" for none.

    Files are `ROOT/TENANT/SHA256.safetensors`. Methods block on disk or network, so call them on a thread. Raises
    ConfigError for an unknown kind of storage or a missing package.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        if not root:
            return
        if "://" not in root:
            raise ConfigError(f"the storage of weights is a URI like file:///mnt/adapters, not {root!r}")
        try:
            from fsspec.core import url_to_fs

            self._files, self._folder = url_to_fs(self._root)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"the storage of weights {root!r} cannot be used: {error}") from error

    def put(self, tenant: str, version: str, weights: bytes) -> str:
        """Store weights once, and return their URI. Raises ConfigError (no root), BrokerUnavailable (it fails)."""
        if not self._root:
            raise ConfigError(
                f"weights of {len(weights)} bytes do not fit in a record ({MAX_INLINE_BYTES} at most): "
                "FLEETLORE_WEIGHTS_STORAGE says where larger ones go"
            )
        name = f"{tenant}/{version}.safetensors"
        write = self._write_file if self._root.startswith("file:") else self._files.pipe_file
        try:
            write(f"{self._folder}/{name}", weights)
        except Exception as error:  # each storage has its own errors
            raise BrokerUnavailable(f"{self._root} did not take weights: {error!r}") from error
        return f"{self._root}/{name}"

    def fetch(self, uri: str, manifest: AdapterManifest) -> bytes:
        """Return verified weights. If they exceed the adapter's limit, read none.

        Raises AdapterRefused:
            not_allowed: outside the root, no root, behind a link, or not a regular file.
            oversized, truncated, tampered: wrong content.
            missing: not found; unreachable: the storage does not answer. Both may be transient.
        """
        name, size = uri.removeprefix(f"{self._root}/"), manifest.size_bytes
        if not self._root or name == uri or not _BELOW.match(name):
            raise AdapterRefused("not_allowed", f"{uri[:200]!r} is not under {self._root!r}")
        if not 0 < size <= manifest.most_bytes:
            raise AdapterRefused("oversized", f"{size} bytes of weights")
        read = self._read_file if self._root.startswith("file:") else self._files.cat_file
        try:
            weights: bytes = read(f"{self._folder}/{name}", start=0, end=size + 1)
        except AdapterRefused:
            raise
        except FileNotFoundError as error:
            raise AdapterRefused("missing", f"{uri[:200]} is not there") from error
        except Exception as error:
            raise AdapterRefused("unreachable", f"{uri[:200]}: {error!r}") from error
        if len(weights) != size:
            reason = "oversized" if len(weights) > size else "truncated"
            raise AdapterRefused(reason, f"{uri[:200]} is not of {size} bytes")
        if hashlib.sha256(weights).hexdigest() != manifest.version:
            raise AdapterRefused("tampered", f"{uri[:200]} is not what its hash says")
        return weights

    def _write_file(self, path: str, weights: bytes) -> None:
        """Write atomically: agents may read the same file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(path), weights, _EVERYBODY)

    def _read_file(self, path: str, start: int, end: int) -> bytes:
        """Read part of a regular file. Links could lead out of the root, and pipes would block."""
        if os.path.realpath(path) != os.path.realpath(self._folder) + path.removeprefix(self._folder):
            raise AdapterRefused("not_allowed", f"{path[-200:]!r} is behind a link")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AdapterRefused("not_allowed", f"{path[-200:]!r} is no regular file")
            file.seek(start)
            return file.read(end - start)

    def drop(self, tenant: str, version: str) -> None:
        """Delete weights if possible. A failure only wastes space."""
        if self._root:
            with contextlib.suppress(Exception):
                self._files.rm_file(f"{self._folder}/{tenant}/{version}.safetensors")
