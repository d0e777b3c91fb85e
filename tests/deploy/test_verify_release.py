"""A release whose files were changed, added or signed by another key is refused."""

import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
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
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    file = tmp_path / "ec.pem"
    private = generate_private_key(SECP256R1())
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SystemExit, match="holds no Ed25519 key"):
        release.sign(file)
