"""Store weights that are too large for a record in a shared folder or object store, with a reference on the topic.

The reference is unsigned: the signed manifest names the weights by hash. A forged reference could make an agent open
other files or hosts. So an agent opens only URLs under its own root, and reads no more than an adapter's size limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import orjson

from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.files import write_whole

__all__ = ["MAX_INLINE_BYTES", "BlobStore", "sha256_of"]

_SCHEMA = 1
MAX_INLINE_BYTES = 512 * 1024
# File mode before the umask: agents of other users read the shared folder.
_EVERYBODY = 0o666
# No `..`, hidden file or second scheme, which could lead out of the root.
_BELOW = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True, slots=True)
class WeightsReference:
    """Location of a version's weights: the value on `adapters.weights` in place of the weights."""

    uri: str
    sha256: str
    size_bytes: int
    schema: int = _SCHEMA

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)


def parse_reference(value: bytes) -> WeightsReference | None:
    """Parse a reference, or return None if the value holds weights. Raises AdapterRefused (`malformed`, `schema`)."""
    if value[:1] != b"{" or len(value) > 10_000:
        return None
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None  # weights whose header length begins with this byte
    uri, sha256, size, schema = (body.get(name) for name in ("uri", "sha256", "size_bytes", "schema"))
    if not (isinstance(uri, str) and isinstance(sha256, str) and type(size) is int and size > 0):
        raise AdapterRefused("malformed", "reference: uri, sha256 or size_bytes is missing or of the wrong type")
    if schema != _SCHEMA:
        raise AdapterRefused("schema", f"reference of schema {schema}, this release reads {_SCHEMA}")
    return WeightsReference(uri, sha256, size)


def sha256_of(weights: bytes) -> str:
    # A cache would hold large weights for ever.
    return _small(weights) if len(weights) <= MAX_INLINE_BYTES else hashlib.sha256(weights).hexdigest()


@lru_cache(maxsize=2)  # all agents of a process ask for the same weights
def _small(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()


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

    def put(self, tenant: str, version: str, weights: bytes) -> WeightsReference:
        """Store weights; idempotent. Raises ConfigError without a root, BrokerUnavailable if the storage fails."""
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
        return WeightsReference(f"{self._root}/{name}", version, len(weights))

    def fetch(self, reference: WeightsReference, most_bytes: int) -> bytes:
        """Return verified weights. If they exceed `most_bytes`, read none.

        Raises AdapterRefused:
            not_allowed: outside the root, no root, behind a link, or not a regular file.
            oversized, truncated, tampered: wrong content.
            missing: not found; unreachable: the storage does not answer. Both may be transient.
        """
        name = reference.uri.removeprefix(f"{self._root}/")
        if not self._root or name == reference.uri or not _BELOW.match(name):
            raise AdapterRefused("not_allowed", f"{reference.uri[:200]!r} is not under {self._root!r}")
        if reference.size_bytes > most_bytes:
            raise AdapterRefused("oversized", f"{reference.size_bytes} bytes of weights")
        read = self._read_file if self._root.startswith("file:") else self._files.cat_file
        try:
            weights: bytes = read(f"{self._folder}/{name}", start=0, end=reference.size_bytes + 1)
        except AdapterRefused:
            raise
        except FileNotFoundError as error:
            raise AdapterRefused("missing", f"{reference.uri[:200]} is not there") from error
        except Exception as error:  # each storage has its own errors
            raise AdapterRefused("unreachable", f"{reference.uri[:200]}: {error!r}") from error
        if len(weights) != reference.size_bytes:
            reason = "oversized" if len(weights) > reference.size_bytes else "truncated"
            raise AdapterRefused(reason, f"{reference.uri[:200]} is not of {reference.size_bytes} bytes")
        if sha256_of(weights) != reference.sha256:
            raise AdapterRefused("tampered", f"{reference.uri[:200]} is not what its hash says")
        return weights

    def _write_file(self, path: str, weights: bytes) -> None:
        """Write atomically, as an object store does: agents may read the same file."""
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
