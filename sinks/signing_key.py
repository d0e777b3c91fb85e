"""Load and create the trainer's signing key: a PEM file that only its owner may read."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fleetlore.adapters.signatures import SigningKey
from fleetlore.errors import ConfigError
from fleetlore.files import write_whole


def load_signing_key(file: str | Path) -> SigningKey:
    """Load the key in `file`. Raises ConfigError if it is missing or no Ed25519 key."""
    try:
        return SigningKey.from_pem(Path(file).read_bytes())
    except OSError as error:
        raise ConfigError(f"the signing key {file} cannot be read: {error.strerror}") from error


def create_signing_key(file: str | Path) -> SigningKey:
    """Load the key in `file`, or make it if it is missing (mode 0600, in a folder of mode 0700)."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = SigningKey(Ed25519PrivateKey.generate())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write_whole(draft, key.to_pem())
    try:
        # A link, because it is made whole or not at all: of two processes that start together, both use the same key.
        os.link(draft, path)
    except FileExistsError:
        return load_signing_key(path)
    finally:
        draft.unlink()
    return key
