"""Sign and verify adapter documents.

The signature covers the parsed object, including fields unknown to this release.
"""

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.files import write_whole
from fleetlore.wire.adapter_manifest import SCHEMA, AnyRecord, Revocation
from fleetlore.wire.decode import json_reader

__all__ = ["SigningKey", "public_keys"]

Document = TypeVar("Document", bound=AnyRecord | Revocation)
PublicKeys = Mapping[str, Ed25519PublicKey]

# With inline weights of at most 512 KiB it fits into a record, which has 1 MiB.
_MAX_DOCUMENT_BYTES = 500 * 1024


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The trainer's Ed25519 key. Signed documents carry its `key_id`, so that keys can be rotated."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, data: bytes) -> Self:
        """Load an unencrypted PKCS #8 PEM, as `openssl genpkey -algorithm ed25519` writes it. Raises ConfigError."""
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError("it is no unencrypted PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError("it is no Ed25519 key")
        return cls(key)

    def to_pem(self) -> bytes:
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public_base64(self) -> str:
        return base64.b64encode(self.private.public_key().public_bytes_raw()).decode()

    @property
    def key_id(self) -> str:
        return _key_id_of(self.private.public_key())

    def sign(self, document: object) -> bytes:
        """Return canonical JSON of the document with `key_id` and `signature`."""
        body = msgspec.to_builtins(document) | {"key_id": self.key_id}
        signature = self.private.sign(_canonical(body))
        return _canonical(body | {"signature": base64.b64encode(signature).decode()})


def _key_id_of(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def public_keys(*texts: str) -> dict[str, Ed25519PublicKey]:
    """Parse keys of raw base64, comma-separated. Each may revoke those after it. Raises ConfigError."""
    keys: dict[str, Ed25519PublicKey] = {}
    for text in (key for several in texts for key in several.split(",") if key.strip()):
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(text.strip(), validate=True))
        except ValueError as error:
            raise ConfigError("a public key is 32 bytes in base64") from error
        keys.setdefault(_key_id_of(key), key)
    if not keys:
        raise ConfigError("FLEETLORE_PUBLIC_KEY is empty: whose adapters are to be believed?")
    return keys


def verify(data: bytes, trusted: PublicKeys, kind: type[Document]) -> tuple[Document, str]:
    """Return the document in `data` and the id of the trusted key that signed it. Raises AdapterRefused."""
    signer = signed_by(data, trusted)
    try:
        return json_reader(kind)(data), signer
    except msgspec.DecodeError as error:
        raise AdapterRefused("malformed", str(error)) from error


def signed_by(data: bytes, trusted: PublicKeys) -> str:
    """Return the id of the trusted key that signed `data`. Raises AdapterRefused."""
    if len(data) > _MAX_DOCUMENT_BYTES:
        raise AdapterRefused("oversized", f"{len(data)} bytes of a document")
    try:
        body = orjson.loads(data)
        signature = base64.b64decode(body.pop("signature"), validate=True)
        key_id, schema = str(body["key_id"]), body["schema"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterRefused("malformed", repr(error)[:200]) from error
    key = trusted.get(key_id)
    if key is None:
        raise AdapterRefused("unknown_key", f"no trusted key is {key_id[:64]!r}")
    try:
        key.verify(signature, _canonical(body))
    except InvalidSignature:
        raise AdapterRefused("tampered", "the signature does not match") from None
    except orjson.JSONEncodeError as error:  # nested too deeply to encode; the decoder allows more
        raise AdapterRefused("malformed", str(error)) from None
    if schema != SCHEMA:
        raise AdapterRefused("schema", f"schema {schema}, this release reads {SCHEMA}")
    return key_id


def _canonical(body: dict[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def load_signing_key(file: str | Path) -> SigningKey:
    """Load the key in `file`. Raises ConfigError if it is missing or no Ed25519 key."""
    try:
        return SigningKey.from_pem(Path(file).read_bytes())
    except (OSError, ConfigError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the signing key {file} cannot be read: {why}") from error


def create_signing_key(file: str | Path) -> SigningKey:
    """Load or create the key in `file` (mode 0600, in a folder of mode 0700)."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = SigningKey(Ed25519PrivateKey.generate())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write_whole(draft, key.to_pem())
    try:
        # A link is atomic, so two processes that start together use the same key.
        os.link(draft, path)
    except FileExistsError:
        return load_signing_key(path)
    finally:
        draft.unlink()
    return key
