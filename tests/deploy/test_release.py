"""The wheels of `make release` install and run without this checkout."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.verify_release import verify
from streams.embedded.broker import free_port
from tests.deploy.test_verify_release import AMBIENT

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FROM = "fleetlore-server[embedded]"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clone = tmp_path_factory.mktemp("release") / "fleetlore"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    key = clone.parent / "release.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    release = [sys.executable, "deploy/release.py", "--key", key]
    environ = {name: value for name, value in os.environ.items() if name not in AMBIENT}
    done = subprocess.run(release, cwd=clone, env=environ, capture_output=True, text=True)
    if done.returncode and "'npm'" in done.stderr:
        pytest.skip("what the TypeScript client is built with cannot be fetched")
    assert done.returncode == 0, done.stderr
    assert "no OIDC identity here: signed by the key" in done.stdout
    (clone.parent / "fingerprint").write_text(done.stdout.split()[-1])
    return clone / "dist"


def uv(dist: Path, *arguments: str) -> list[str]:
    """Install like a user, with the folder of wheels as an index beside PyPI."""
    tool = [sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable]
    return [*tool, "--find-links", str(dist), *arguments]


def clean(folder: Path) -> dict[str, str]:
    names = {"PYTHONPATH": "", "UV_TOOL_DIR": str(folder / "tools"), "PIPX_HOME": str(folder / "pipx")}
    return {**os.environ, **names, "PIPX_BIN_DIR": str(folder / "bin"), "PIP_FIND_LINKS": str(folder / "dist")}


def test_every_file_has_its_checksum_and_its_place_in_the_provenance(dist: Path) -> None:
    said = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.iterdir()}
    signed = [files.pop(name) for name in ("SHA256SUMS", "SHA256SUMS.sig", "release.pub")]
    assert len(signed) == 3 and files == said
    assert verify(dist, (dist.parents[1] / "fingerprint").read_text()) == len(files)
    (provenance,) = dist.glob("fleetlore-provenance-*.json")
    stated = json.loads(provenance.read_text())
    assert {each["name"]: each["digest"]["sha256"] for each in stated["subject"]} == {
        name: digest for name, digest in files.items() if name != provenance.name
    }
    (material,) = stated["predicate"]["buildDefinition"]["resolvedDependencies"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert material["digest"]["gitCommit"] == head.strip()
    kinds = {name.rpartition(".")[2] for name in files}
    assert {"whl", "gz", "tgz", "json"} <= kinds and sum(name.endswith(".whl") for name in files) == 3


def test_the_chart_and_the_image_context_are_whole(dist: Path) -> None:
    (chart,) = dist.glob("fleetlore-chart-*.tgz")
    with tarfile.open(chart) as tar:
        held = tar.extractfile("fleetlore/Chart.yaml")
        assert held is not None and yaml.safe_load(held.read())["version"] in chart.name
    (context,) = dist.glob("fleetlore-image-*.tar.gz")
    with tarfile.open(context) as tar:
        names = set(tar.getnames())
    copied = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {*copied, "deploy/Dockerfile"} <= names


@pytest.fixture(scope="module")
def box(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, subprocess.Popen[str]]]:
    folder, port = tmp_path_factory.mktemp("box"), free_port()
    installed = subprocess.run(
        uv(dist, "--from", FROM, "fleetlore", "--help"), cwd=folder, env=clean(folder), capture_output=True, text=True
    )
    if "Failed to fetch" in installed.stderr:
        pytest.skip("uv cannot fetch from PyPI")
    command = uv(
        dist, "--from", FROM, "fleetlore", "up", "--data", str(folder / "lore"), "--no-console", "--no-trainer"
    )
    with subprocess.Popen(
        [*command, "--http", f"127.0.0.1:{port}"], cwd=folder, env=clean(folder), stderr=subprocess.PIPE, text=True
    ) as running:
        yield folder, port, running
        running.send_signal(signal.SIGINT)
        running.wait(120)


def test_uvx_runs_the_stack_with_a_relay(box: tuple[Path, int, subprocess.Popen[str]]) -> None:
    _, port, running = box
    assert running.stderr is not None
    assert any("Ctrl-C stops it" in line for line in running.stderr)
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/openapi.json", timeout=120) as answer:
                assert json.load(answer)["openapi"].startswith("3.1")
                return
        except OSError:
            signal.sigtimedwait([], 0.2)
    pytest.fail("the relay does not answer")


def test_the_page_leads_to_the_first_hint(box: tuple[Path, int, subprocess.Popen[str]]) -> None:
    folder, port, _ = box
    page = (ROOT / "docs" / "guide" / "host.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    script = folder / "first_hint.py"
    script.write_text(program.replace("127.0.0.1:7411", f"127.0.0.1:{port}"))
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=120)
    assert "products-eu" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_pipx_installs_the_command(dist: Path, tmp_path: Path) -> None:
    pipx = [sys.executable, "-m", "uv", "tool", "run", "pipx", "install", "--python", sys.executable]
    environ = {**clean(tmp_path), "PIP_FIND_LINKS": str(dist)}
    subprocess.run([*pipx, "--pip-args", f"--find-links {dist}", FROM], check=True, env=environ, cwd=tmp_path)
    command = [tmp_path / "bin" / "fleetlore", "up", "--help"]
    said = subprocess.run(command, check=True, env=environ, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "--http" in said


@pytest.mark.slow
def test_an_agent_takes_less_than_sixty_megabytes_beside_numpy(dist: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(tmp_path / "bin" / "python")]
    subprocess.run([*install, "--find-links", str(dist), "fleetlore"], check=True, env=clean(tmp_path))
    (packages,) = tmp_path.glob("lib/python3*/site-packages")
    sizes = {file: file.stat().st_size for file in packages.rglob("*") if file.is_file()}
    numpy = sum(size for file, size in sizes.items() if file.relative_to(packages).parts[0].startswith("numpy"))
    others = sum(sizes.values()) - numpy
    assert others < 60e6, f"{others / 1e6:.0f} MB"
    print(f"numpy {numpy / 1e6:.1f} MB, others {others / 1e6:.1f} MB")
