"""A release whose files were changed, added or signed by another key or identity is refused."""

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy import release
from deploy.verify_release import ReleaseRefused, verify


def key_file(folder: Path, name: str = "key.pem") -> Path:
    file = folder / name
    private = Ed25519PrivateKey.generate()
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "fleetlore-1-py3-none-any.whl").write_bytes(b"a wheel")
    (folder / "fleetlore-sbom-1.json").write_text(json.dumps({"bomFormat": "CycloneDX"}))
    write_sums(folder)
    monkeypatch.setattr(release, "DIST", folder)
    return folder


# Variables by which a build service offers an identity: a test must not write to Sigstore's public log.
AMBIENT = ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "GOOGLE_SERVICE_ACCOUNT_NAME")
IDENTITY, ISSUER = "releases@example.com", "https://accounts.example.com"


def own_bundle(content: bytes) -> str:
    """A bundle in Sigstore's form that signs `content` as anybody, by a certificate that its maker issued."""

    def text(value: bytes) -> str:
        return base64.b64encode(value).decode()

    private, now, nobody = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), x509.Name([])
    built = x509.CertificateBuilder(nobody, nobody, private.public_key(), 1, now, now + timedelta(minutes=10))
    built = built.add_extension(x509.SubjectAlternativeName([x509.RFC822Name(IDENTITY)]), True)
    issuer = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1"), ISSUER.encode())
    certificate = built.add_extension(issuer, False).sign(private, SHA256())
    place = {"logIndex": "1", "integratedTime": str(int(now.timestamp())), "logId": {"keyId": text(bytes(32))}}
    proof = {"logIndex": "1", "treeSize": "2", "rootHash": text(bytes(32)), "hashes": [text(bytes(32))]}
    entry = {
        **place,
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
        "inclusionPromise": {"signedEntryTimestamp": text(b"x")},
        "inclusionProof": {**proof, "checkpoint": {"envelope": "x"}},
        "canonicalizedBody": text(b"{}"),
    }
    raw = {"rawBytes": text(certificate.public_bytes(Encoding.DER))}
    digest = {"algorithm": "SHA2_256", "digest": text(hashlib.sha256(content).digest())}
    signature = text(private.sign(content, ec.ECDSA(SHA256())))
    return json.dumps(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": raw, "tlogEntries": [entry]},
            "messageSignature": {"messageDigest": digest, "signature": signature},
        }
    )


def write_sums(folder: Path) -> None:
    def digests() -> dict[str, str]:
        files = sorted(each for each in folder.iterdir() if each.suffix in (".whl", ".json"))
        return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}

    provenance = folder / "fleetlore-provenance-1.json"
    provenance.unlink(missing_ok=True)
    subject = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests().items()]
    provenance.write_text(json.dumps({"subject": subject}))
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests().items())
    (folder / release.SUMS).write_text(sums)


def test_a_signed_release_is_whole(dist: Path, tmp_path: Path) -> None:
    fingerprint = release.sign(key_file(tmp_path))
    assert verify(dist, fingerprint) == 3
    assert verify(dist, fingerprint.upper()) == 3


@pytest.mark.parametrize(
    "name", ["fleetlore-1-py3-none-any.whl", "fleetlore-sbom-1.json", "SHA256SUMS", "SHA256SUMS.sig"]
)
@pytest.mark.parametrize("change", ["one byte", "missing"])
def test_a_changed_or_missing_file_is_refused(dist: Path, tmp_path: Path, name: str, change: str) -> None:
    fingerprint = release.sign(key_file(tmp_path))
    file = dist / name
    if change == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[0] ^= 1
        file.write_bytes(content)
    with pytest.raises(ReleaseRefused, match=r"SHA256SUMS|fleetlore"):
        verify(dist, fingerprint)


def test_an_added_file_is_refused(dist: Path, tmp_path: Path) -> None:
    fingerprint = release.sign(key_file(tmp_path))
    (dist / "fleetlore_server-1-py3-none-any.whl").write_bytes(b"of somebody else")
    with pytest.raises(ReleaseRefused, match="fleetlore_server-1"):
        verify(dist, fingerprint)


def test_the_signature_of_another_key_is_refused(dist: Path, tmp_path: Path) -> None:
    fingerprint = release.sign(key_file(tmp_path))
    (dist / "fleetlore-1-py3-none-any.whl").write_bytes(b"another wheel")
    write_sums(dist)
    release.sign(key_file(tmp_path, "other.pem"))
    with pytest.raises(ReleaseRefused, match="not the key with the fingerprint"):
        verify(dist, fingerprint)


def test_a_provenance_of_other_files_is_refused(dist: Path, tmp_path: Path) -> None:
    (dist / "fleetlore-1-py3-none-any.whl").write_bytes(b"another wheel")
    old = (dist / "fleetlore-provenance-1.json").read_bytes()
    write_sums(dist)
    provenance = dist / "fleetlore-provenance-1.json"
    now = hashlib.sha256(provenance.read_bytes()).hexdigest()
    provenance.write_bytes(old)
    sums = (dist / "SHA256SUMS").read_text().replace(now, hashlib.sha256(old).hexdigest())
    (dist / "SHA256SUMS").write_text(sums)
    fingerprint = release.sign(key_file(tmp_path))
    with pytest.raises(ReleaseRefused, match="names other files"):
        verify(dist, fingerprint)


def test_a_key_of_another_kind_is_refused(dist: Path, tmp_path: Path) -> None:
    file = tmp_path / "ec.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SystemExit, match="holds no Ed25519 key"):
        release.sign(file)


def test_a_bundle_that_sigstore_did_not_issue_is_refused(dist: Path) -> None:
    pytest.importorskip("sigstore")
    bundle = dist / release.BUNDLE
    for content, reason in ((own_bundle((dist / release.SUMS).read_bytes()), "certificate"), ("{}", "load bundle")):
        bundle.write_text(content)
        with pytest.raises(ReleaseRefused, match=f"is not the signature of SHA256SUMS by {IDENTITY}.*{reason}"):
            verify(dist, IDENTITY, ISSUER)


def test_a_signature_of_the_other_kind_is_no_signature(dist: Path, tmp_path: Path) -> None:
    fingerprint = release.sign(key_file(tmp_path))
    with pytest.raises(ReleaseRefused, match=r"no SHA256SUMS.sigstore.json: was it signed by a key"):
        verify(dist, IDENTITY, ISSUER)
    (dist / release.SIGNATURE).unlink()
    with pytest.raises(ReleaseRefused, match=r"no SHA256SUMS.sig: was it signed by Sigstore"):
        verify(dist, fingerprint)


def test_without_an_identity_sigstore_signs_nothing(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    assert release.sign_by_identity() is None
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", raising=False)
    assert release.sign_by_identity() is None and not (dist / release.BUNDLE).exists()
