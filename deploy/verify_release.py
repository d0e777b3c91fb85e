"""Check a release before it is installed: `make verify-release FINGERPRINT=…`.

Every file has the checksum that the list gives, and no other file lies beside them. The checksums are signed by the key
with this fingerprint. The provenance names every file, and the bill of materials is in CycloneDX's form.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from deploy.release import DIST, PUBLIC_KEY, SIGNATURE, SUMS, fingerprint


class ReleaseRefused(Exception):
    """The files are not those of a release that this key signed. Do not install them."""


def verify(folder: Path, expected: str) -> int:
    """Return the number of files. `expected`: fingerprint of the key. Raises ReleaseRefused."""
    for name in (SUMS, SIGNATURE, PUBLIC_KEY):
        if not (folder / name).is_file():
            raise ReleaseRefused(f"{folder} has no {name}")
    sums = (folder / SUMS).read_bytes()
    public = load_pem_public_key((folder / PUBLIC_KEY).read_bytes())
    if not isinstance(public, Ed25519PublicKey) or fingerprint(public) != expected.lower():
        raise ReleaseRefused(f"{PUBLIC_KEY} is not the key with the fingerprint {expected}")
    try:
        public.verify((folder / SIGNATURE).read_bytes(), sums)
    except InvalidSignature:
        raise ReleaseRefused(f"{SIGNATURE} is not this key's signature of {SUMS}") from None
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in sums.decode().splitlines())}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name not in (SUMS, SIGNATURE, PUBLIC_KEY)
    }
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            raise ReleaseRefused(f"{name} is missing, changed or not listed in {SUMS}")
    _check_statements(folder, listed)
    return len(listed)


def _check_statements(folder: Path, listed: dict[str, str]) -> None:
    (provenance,) = folder.glob("fleetlore-provenance-*.json")
    stated = json.loads(provenance.read_bytes())
    named = {each["name"]: each["digest"]["sha256"] for each in stated["subject"]}
    if named != {name: digest for name, digest in listed.items() if name != provenance.name}:
        raise ReleaseRefused(f"{provenance.name} names other files than {SUMS}")
    (materials,) = folder.glob("fleetlore-sbom-*.json")
    if json.loads(materials.read_bytes()).get("bomFormat") != "CycloneDX":
        raise ReleaseRefused(f"{materials.name} is no bill of materials in CycloneDX's form")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check the files of a release.")
    parser.add_argument("folder", type=Path, nargs="?", default=DIST)
    parser.add_argument("--fingerprint", required=True, help="SHA-256 of the release key, in hex")
    options = parser.parse_args()
    try:
        print(f"{verify(options.folder, options.fingerprint)} files are those that the key signed")
    except ReleaseRefused as error:
        raise SystemExit(f"do not install this: {error}") from None
