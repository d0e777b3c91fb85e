"""Check a release before it is installed: `make verify-release FINGERPRINT=…`, or `IDENTITY=… ISSUER=…`.

Every file has the checksum that the list gives, and no other file lies beside them. The checksums are signed by the key
with this fingerprint, or by Sigstore as this identity. The provenance names every file, and the bill of materials is in
CycloneDX's form.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from deploy.release import BUNDLE, DIST, PUBLIC_KEY, SIGNATURE, SUMS, fingerprint


class ReleaseRefused(Exception):
    """The files are not those of a release that this key or identity signed. Do not install them."""


def verify(folder: Path, signer: str, issuer: str = "") -> int:
    """Return the number of files. Raises ReleaseRefused.

    Args:
        folder: the files of a release.
        signer: fingerprint of the key, or the identity if `issuer` is given.
        issuer: of the identity's token, for a release that Sigstore signed.
    """
    signatures = (SUMS, BUNDLE) if issuer else (SUMS, SIGNATURE, PUBLIC_KEY)
    for name in signatures:
        if not (folder / name).is_file():
            other = "a key" if issuer else "Sigstore"
            raise ReleaseRefused(f"{folder} has no {name}: was it signed by {other}?")
    sums = (folder / SUMS).read_bytes()
    if issuer:
        _check_identity(folder, sums, signer, issuer)
    else:
        _check_key(folder, sums, signer)
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in sums.decode().splitlines())}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name not in signatures
    }
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            raise ReleaseRefused(f"{name} is missing, changed or not listed in {SUMS}")
    _check_statements(folder, listed)
    return len(listed)


def _check_key(folder: Path, sums: bytes, expected: str) -> None:
    public = load_pem_public_key((folder / PUBLIC_KEY).read_bytes())
    if not isinstance(public, Ed25519PublicKey) or fingerprint(public) != expected.lower():
        raise ReleaseRefused(f"{PUBLIC_KEY} is not the key with the fingerprint {expected}")
    try:
        public.verify((folder / SIGNATURE).read_bytes(), sums)
    except InvalidSignature:
        raise ReleaseRefused(f"{SIGNATURE} is not this key's signature of {SUMS}") from None


def _check_identity(folder: Path, sums: bytes, identity: str, issuer: str) -> None:
    """Check without network: the client brings Sigstore's root of trust, and the bundle the proof of its log."""
    from sigstore.errors import Error
    from sigstore.models import Bundle
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity

    try:
        bundle = Bundle.from_json((folder / BUNDLE).read_bytes())
        expected = Identity(identity=identity, issuer=issuer)
        Verifier.production(offline=True).verify_artifact(sums, bundle, expected)
    except Error as error:
        raise ReleaseRefused(f"{BUNDLE} is not the signature of {SUMS} by {identity}: {error}") from None


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
    parser.add_argument("--fingerprint", help="SHA-256 of the release key, in hex")
    parser.add_argument("--identity", help="who signed by Sigstore: an address, or the workflow's URL")
    parser.add_argument("--issuer", default="", help="who vouches for the identity: its OIDC issuer")
    options = parser.parse_args()
    if not options.fingerprint and not (options.identity and options.issuer):
        parser.error("say who signed: --fingerprint, or --identity and --issuer")
    try:
        count = verify(options.folder, options.identity if options.issuer else options.fingerprint, options.issuer)
    except ReleaseRefused as error:
        raise SystemExit(f"do not install this: {error}") from None
    print(f"{count} files are those that were signed")
