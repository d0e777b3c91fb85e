"""Build what a release consists of into `dist/`: `make release`.

Wheels and source distributions, the context that the image is built from, the chart, the npm package of the TypeScript
client, a bill of materials, a provenance statement, and the SHA-256 of each. It builds what is committed, and nothing
else: a changed file is an error. The checksums are signed by Sigstore where the environment has an OIDC identity, as in
the CI of GitHub and GitLab, and else with `--key FILE` (an Ed25519 key, PEM). Sigstore's log gets their digest, and
nothing else is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SUMS, SIGNATURE, PUBLIC_KEY, BUNDLE = "SHA256SUMS", "SHA256SUMS.sig", "release.pub", "SHA256SUMS.sigstore.json"
# The folder of each distribution, and whether it has a source distribution: the server's packages lie beside its
# folder, which such an archive would not reach.
PROJECTS = {".": True, "deploy/encoder": True, "deploy/server": False}
CHART = "deploy/helm/fleetlore"
CLIENT = "clients/typescript"
# The files that `deploy/Dockerfile` copies.
CONTEXT = ("deploy", "fleetlore", "models", "sinks", "streams", "pyproject.toml", "README.md", "LICENSE")


def build_wheels(source: Path, folder: Path, python: str = sys.executable) -> list[Path]:
    """Build the wheel of each distribution from the tree `source` into `folder`."""
    for project in PROJECTS:  # deleted modules would stay
        shutil.rmtree(source / project / "build" / "lib", ignore_errors=True)
    for project in PROJECTS:
        _run(python, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", folder, source / project)
    return sorted(folder.glob("*.whl"))


def release() -> list[Path]:
    """Build everything; return the files."""
    if changed := _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"a release is of what is committed; these files are not:\n{changed}")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        archive = source / "source.tar"
        _git("archive", "--format=tar", f"--output={archive}", "HEAD")
        with tarfile.open(archive) as tar:
            tar.extractall(source / "tree", filter="data")
        tree = source / "tree"
        build_wheels(tree, DIST)
        for project, has_source in PROJECTS.items():
            if has_source:
                _run(sys.executable, "-m", "uv", "build", "--quiet", "--sdist", "--out-dir", DIST, tree / project)
        _git("archive", "--format=tar.gz", f"--output={DIST}/fleetlore-image-{version}.tar.gz", "HEAD", *CONTEXT)
        with tarfile.open(DIST / f"fleetlore-chart-{version}.tgz", "w:gz") as tar:  # as `helm package` lays it out
            tar.add(tree / CHART, arcname="fleetlore")
        if shutil.which("npm"):
            _run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=tree / CLIENT)
            _run("npm", "pack", "--silent", "--pack-destination", DIST, cwd=tree / CLIENT)
        else:
            print("no npm: without the package of the TypeScript client")
    _run(
        Path(sys.executable).parent / "cyclonedx-py", "requirements", ROOT / "deploy/requirements.txt",
        "--pyproject", ROOT / "deploy/server/pyproject.toml", "--output-reproducible",
        "--output-file", DIST / f"fleetlore-sbom-{version}.json",
    )  # fmt: skip
    (DIST / ".gitignore").unlink(missing_ok=True)  # uv's
    files = sorted(DIST.iterdir())
    provenance = DIST / f"fleetlore-provenance-{version}.json"
    provenance.write_text(json.dumps(_provenance(files), indent=2) + "\n")
    files.append(provenance)
    (DIST / SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in files))
    return files


def sign(key: Path) -> str:
    """Sign the checksums. Write the signature and the public key, and return the key's fingerprint."""
    private = load_pem_private_key(key.read_bytes(), None)
    if not isinstance(private, Ed25519PrivateKey):
        raise SystemExit(f"{key} holds no Ed25519 key: openssl genpkey -algorithm ed25519 -out {key}")
    public = private.public_key()
    (DIST / SIGNATURE).write_bytes(private.sign((DIST / SUMS).read_bytes()))
    (DIST / PUBLIC_KEY).write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return fingerprint(public)


def sign_by_identity() -> str | None:
    """Sign the checksums by Sigstore. Return who signed, or None if the environment has no OIDC identity."""
    try:
        from sigstore.models import ClientTrustConfig
        from sigstore.oidc import IdentityError, IdentityToken, detect_credential
        from sigstore.sign import SigningContext
    except ModuleNotFoundError:
        return None
    try:
        credential = detect_credential()
    except IdentityError as error:  # a build service that does not let this job have its identity
        print(f"no identity for Sigstore: {error}")
        return None
    if credential is None:
        return None
    token = IdentityToken(credential)
    with SigningContext.from_trust_config(ClientTrustConfig.production()).signer(token) as signer:
        (DIST / BUNDLE).write_text(signer.sign_artifact((DIST / SUMS).read_bytes()).to_json())
    return f"IDENTITY={token.identity} ISSUER={token.federated_issuer}"


def fingerprint(public: Ed25519PublicKey) -> str:
    """Return the SHA-256 of the key's 32 bytes in hex."""
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()


def _provenance(files: list[Path]) -> dict[str, object]:
    """Return a statement in the form of in-toto and SLSA 1.0. The checksums cover it, and their signature both."""
    material = {"uri": "git+file:fleetlore", "digest": {"gitCommit": _git("rev-parse", "HEAD")}}
    started = datetime.fromtimestamp(int(_git("log", "-1", "--format=%ct")), UTC).isoformat()
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": _sha256(file)}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:fleetlore:make-release:v1",
                "externalParameters": {"target": "release"},
                "internalParameters": {"python": sys.version.split()[0], "committed": started},
                "resolvedDependencies": [material],
            },
            "runDetails": {"builder": {"id": "urn:fleetlore:make"}},
        },
    }


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _run(*command: object, cwd: Path = ROOT) -> None:
    subprocess.run([str(each) for each in command], cwd=cwd, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build a release into dist/.")
    parser.add_argument("--key", type=Path, help="Ed25519 key (PEM) to sign with where no OIDC identity is")
    options = parser.parse_args()
    for file in release():
        print(f"{file.stat().st_size / 1e6:8.2f} MB  {file.relative_to(ROOT)}")
    if signer := sign_by_identity():
        print(f"signed by Sigstore: {signer}")
    elif options.key:
        print(f"no OIDC identity here: signed by the key with the fingerprint {sign(options.key)}")
    else:
        print("not signed: no OIDC identity here; give --key FILE")
