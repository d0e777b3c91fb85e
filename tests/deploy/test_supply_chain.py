"""The image installs files by their hashes, of the versions that the tests ran with; a bill of materials lists them."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.lock import FOLDER, LOCKS, UNPINNED, requirements

ROOT = Path(__file__).parents[2]
# Build tools of our own packages: the tests run with no version of them.
_BUILDS = {"setuptools", "wheel"}
_PACKAGE = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; [^\\]*)? \\\n(?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+",
    re.MULTILINE,
)


LOCK = FOLDER / "requirements.txt"


@pytest.fixture(scope="module", params=LOCKS)
def lock(request: pytest.FixtureRequest) -> Path:
    return FOLDER / str(request.param)


def versions(lock: Path) -> dict[str, str]:
    return {canonicalize_name(match["name"]): match["version"] for match in _PACKAGE.finditer(lock.read_text())}


@pytest.fixture
def locked(lock: Path) -> dict[str, str]:
    return versions(lock)


def test_each_package_of_the_lock_has_hashes_and_no_index(lock: Path, locked: dict[str, str]) -> None:
    text = "".join(line for line in lock.read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert _PACKAGE.sub("", text) == ""
    assert len(locked) > 50
    assert "://" not in text and "--index" not in text


def test_the_lock_holds_what_is_required_in_the_versions_of_the_constraints(lock: Path, locked: dict[str, str]) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    constraints = {canonicalize_name(name): version for name, version in pins.items()}
    assert {name: constraints.get(name) for name in locked.keys() - _BUILDS} == {
        name: version for name, version in locked.items() if name not in _BUILDS
    }
    for each in map(Requirement, requirements(lock.name)):
        if not UNPINNED.match(each.name):
            assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def test_the_image_has_what_a_setting_of_a_role_asks_for_and_no_client_of_language_models(
    locked: dict[str, str],
) -> None:
    """FLEETLORE_WEIGHTS_STORAGE, the console, FLEETLORE_MASK_PERSONAL."""
    assert {"s3fs", "uvicorn", "python-stdnum"} <= locked.keys()
    assert not {"openai", "anthropic", "wordllama"} & locked.keys()


def test_the_image_takes_nothing_without_a_hash_but_pytorch() -> None:
    installs = re.findall(r"^RUN pip install (.*)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    by_hash = [each for each in installs if "--require-hashes" in each]
    assert {each.split()[-1] for each in by_hash} == {*LOCKS}
    ours, torch = [each for each in installs if each not in by_hash]
    assert "--no-deps" in ours and "--no-build-isolation" in ours
    assert "--no-deps" in torch and "torch>=" in torch


def test_a_workers_image_has_no_pytorch() -> None:
    assert not {"torch", "peft", "transformers"} & versions(LOCK).keys()
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM )", text, re.MULTILINE | re.DOTALL))
    assert "COPY --from=build /opt/fleetlore" in stages["worker"] and "torch" not in stages["build"]


def test_the_image_runs_as_nobody_special() -> None:
    """No engine builds it here: this is what can be told from its text."""
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"ARG", "FROM", "RUN", "ENV", "LABEL", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {word for word, _ in lines} == known
    stages = [dict(lines[first:last]) for first, last in pairwise([*starts(lines), len(lines)])]
    assert "--uid 10001" in stages[-4]["RUN"]
    assert [stage.get("USER") for stage in stages[-3:]] == ["fleetlore"] * 3


def starts(lines: list[list[str]]) -> list[int]:
    return [number for number, (word, _) in enumerate(lines) if word == "FROM"]


def test_every_image_of_compose_is_of_one_version() -> None:
    images = re.findall(r"^\s+image: (\S+)$", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    others = {each for each in images if not each.startswith("fleetlore-")}
    assert len(others) == 4
    for each in others:
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*(?:@sha256:[0-9a-f]{64})?", each), each


@pytest.mark.long
def test_the_bill_of_materials_lists_the_lock(tmp_path: Path) -> None:
    locked = versions(LOCK)
    target = _target("sbom", tmp_path)
    bill: Any = orjson.loads(target.read_bytes())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "fleetlore-server")
    assert {canonicalize_name(each["name"]): each["version"] for each in bill["components"]} == locked
    for each in bill["components"]:
        hashes = [found for reference in each["externalReferences"] for found in reference.get("hashes", ())]
        assert {found["alg"] for found in hashes} == {"SHA-256"}, each["name"]


@pytest.mark.slow  # a package that becomes known to be vulnerable must not fail an unrelated change
def test_nothing_that_the_image_installs_is_known_to_be_vulnerable(tmp_path: Path) -> None:
    target = tmp_path / "audit.json"
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--timeout", "5",
         "--requirement", LOCK, "--format", "json", "--output", target],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    if not target.exists():
        pytest.skip(f"no advisories: {done.stderr.strip().splitlines()[-1:]}")
    found = orjson.loads(target.read_bytes())["dependencies"]
    audited = [each for each in found if "skip_reason" not in each]
    if not audited:
        pytest.skip(f"no advisories: {found[0]['skip_reason']}")
    assert {each["name"]: each["vulns"] for each in audited if each["vulns"]} == {}


# Without a wheel for arm64 in this version: pip builds a pure one from the source distribution.
FROM_SOURCE = {"aarch64": "faust-streaming", "x86_64": ""}


@pytest.mark.slow  # asks PyPI for some hundred packages, eight times a lock
@pytest.mark.parametrize("processor", FROM_SOURCE)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_every_package_has_a_wheel_for(lock: Path, python: str, processor: str, tmp_path: Path) -> None:
    """PyTorch is in no lock: its wheels for the CPU are in an index of its own."""
    kept = [each[0] for each in _PACKAGE.finditer(lock.read_text()) if each["name"] != FROM_SOURCE[processor]]
    (tmp_path / "lock.txt").write_text("".join(kept))
    platform = ("--python-platform", f"{processor}-manylinux_2_28", "--python-version", python)
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--target", tmp_path / "target", "--no-deps",
         "--only-binary", ":all:", *platform, "--requirement", tmp_path / "lock.txt"],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    if "Failed to fetch" in done.stderr:
        pytest.skip("uv cannot fetch from PyPI")
    assert done.returncode == 0, done.stderr
    assert f"Would install {len(kept)} packages" in done.stderr


def _target(name: str, folder: Path) -> Path:
    """The files that a target of the Makefile writes into a folder, with this interpreter."""
    lines = (ROOT / "Makefile").read_text().split(f"\n{name}:", 1)[1].split("\n\n", 1)[0].replace("\\\n", " ")
    (command,) = [line.strip() for line in lines.splitlines() if line.strip().startswith("$(BIN)")]
    written = folder / "sbom.json"
    command = command.replace("$(BIN)", str(Path(sys.executable).parent)).replace("build/sbom.json", str(written))
    subprocess.run(command.split(), cwd=ROOT, check=True, timeout=120)
    return written
