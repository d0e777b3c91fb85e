"""Only the owner may read the product's files, whatever the umask is."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fleetlore.adapters.signatures import create_signing_key
from models.llm.client import Answers
from sinks.adapter_publisher import LocalMirror
from streams.embedded.child import Child
from streams.embedded.stack import Stack

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def check(folder: Path) -> None:
    found = modes(folder)
    assert found
    for name, mode in found.items():
        assert mode == (0o700 if (folder / name).is_dir() else 0o600), f"{name} {mode:o}"


def test_versions_keys_and_answers(tmp_path: Path) -> None:
    mirror = LocalMirror(tmp_path / "adapters")
    mirror.write("acme/calls/v1.record", b"record")
    mirror.write("acme/version-v1.revoked", b"revoked")
    create_signing_key(tmp_path / "keys" / "adapter_ed25519")
    answers = Answers(tmp_path / "cache" / "llm.sqlite3")
    answers.put("key", "what a model said")
    check(tmp_path)
    answers.close()


async def test_the_stacks_folder_and_what_its_processes_write(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    stack._lock_folder()
    stack._write_stack_file()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "stack.json").stat().st_mode & 0o777 == 0o600
    await stack.stop()
    logs, written = tmp_path / "logs", tmp_path / "written"
    logs.mkdir(mode=0o700)
    child = Child("child", [sys.executable, "-c", f"open({str(written)!r}, 'w').write('x')"], logs)
    await child.start()
    assert await child.ended() == 0
    assert written.stat().st_mode & 0o777 == 0o600
    check(logs)


def test_no_default_password_opens_a_published_port_of_the_compose_file() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name, service in services.items():
        environ = service.get("environment") or {}
        if service.get("ports"):
            assert not any("PASSWORD" in key for key in environ), name
    grafana = services["grafana"]["environment"]
    assert grafana["GF_AUTH_DISABLE_LOGIN"] == "true" and grafana["GF_AUTH_BASIC_ENABLED"] == "false"
