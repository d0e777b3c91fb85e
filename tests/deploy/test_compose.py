"""docker-compose.yml and the Dockerfile name only what exists. That they start is not tested here: it needs Docker."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from fleetlore.adapters.signatures import load_signing_key
from fleetlore.cli.app import build_app
from fleetlore.config import Settings, variables
from fleetlore.relay.callers import read_tokens

ROOT = Path(__file__).parents[2]
ROLES = ("worker", "trainer")
OURS = (*ROLES, "relay", "console")
METRICS_PORT = "9464"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "deploy" / "Dockerfile").read_text()


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_compose_accepts_the_file() -> None:
    done = subprocess.run(["docker-compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_services_are_there(services: dict[str, Any]) -> None:
    first = {name for name, service in services.items() if "profiles" not in service}
    assert first == {"kafka", "milvus", *OURS} and set(services) == {*first, "prometheus", "grafana"}
    assert services["kafka"]["image"].startswith("apache/kafka:4.")
    for name, service in services.items():
        assert service["healthcheck"]["test"], name
        assert service["restart"] == "unless-stopped", name


@pytest.mark.parametrize("role", ["worker", "trainer"])
def test_a_role_is_a_command(services: dict[str, Any], dockerfile: str, role: str) -> None:
    assert " ".join(services[role]["command"]).endswith(f"fleetlore {role}")
    assert services[role]["build"]["target"] == role and f'CMD ["fleetlore", "{role}"]' in dockerfile
    project = tomllib.loads((ROOT / "deploy/server/pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["fleetlore.commands"]
    app = typer.Typer()
    EntryPoint(role, entries[role], "fleetlore.commands").load()(app)
    assert role in [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]


def test_the_key_is_made_where_the_trainer_looks_for_it(services: dict[str, Any], tmp_path: Path) -> None:
    shell, _, script = services["trainer"]["command"]
    path = services["trainer"]["environment"]["FLEETLORE_SIGNING_KEY"]
    assert shell == "sh" and path in script
    file, public = tmp_path / "keys" / "signing.pem", tmp_path / "signing.pub"
    script = script.replace(path, str(file)).replace("/var/lib/fleetlore/signing.pub", str(public))
    script = script.replace("python -c", f"{sys.executable} -c").replace("exec fleetlore trainer", "true")
    said = []
    for _ in "12":
        subprocess.run([shell, "-c", script], cwd=ROOT, check=True)
        said.append(public.read_text())
    assert said == [f"{load_signing_key(file).public_base64}\n"] * 2, "the second start made another key"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_key_can_be_made_with_openssl_as_the_guide_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "operate.md").read_text()
    commands = re.findall(r"^\$ (openssl .*)$", guide, re.MULTILINE)
    assert len(commands) == 2
    outputs = [
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        for command in commands
    ]
    assert outputs[1].strip() == load_signing_key(tmp_path / "signing.pem").public_base64


def test_the_console_asks_every_role_and_is_on_the_port_that_is_published(services: dict[str, Any]) -> None:
    console = services["console"]
    program, name, *options = console["command"]
    command: Any = typer.main.get_command(build_app()).commands[name]
    with command.make_context(name, options) as context:
        given = context.params
    assert (program, given["host"]) == ("fleetlore", "0.0.0.0")
    assert given["metrics"] == [f"http://{role}:{METRICS_PORT}" for role in ROLES]
    assert console["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"]
    assert f"http://127.0.0.1:{given['port']}/livez" in console["healthcheck"]["test"][-1]
    assert (
        console["environment"]["FLEETLORE_SIGNING_KEY"] == services["trainer"]["environment"]["FLEETLORE_SIGNING_KEY"]
    )
    assert console["volumes"] == [f"{services['trainer']['volumes'][0]}:ro"], "it reads the key and changes nothing"


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting(services: dict[str, Any], name: str) -> None:
    environment = services[name]["environment"]
    assert set(environment) <= set(variables())
    settings = Settings.from_env(environment)
    for address in (settings.broker, settings.milvus.removeprefix("http://")):
        assert address.partition(":")[0] in services
    assert f"INSIDE://{settings.broker}" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert settings.metrics_host == "0.0.0.0", "in a container 127.0.0.1 is out of reach for Prometheus"


def test_the_relay_makes_one_token_and_serves_on_the_published_port(services: dict[str, Any], tmp_path: Path) -> None:
    relay = services["relay"]
    shell, _, script = relay["command"]
    *_, called = script.partition("exec ")
    program, name, *options = called.split()
    file = tmp_path / "tokens"
    made = []
    script = script.replace("$$", "$").replace("/var/lib/fleetlore", str(tmp_path)).replace("exec fleetlore", "true")
    for _ in "12":
        subprocess.run([shell, "-c", script.replace("python -c", f"{sys.executable} -c")], check=True)
        made.append(file.read_text())
    assert made[0] == made[1], "the second start made another token"
    assert file.stat().st_mode & 0o077 == 0
    [caller] = read_tokens(file).values()
    assert caller.agent == "agent"
    command: Any = typer.main.get_command(build_app()).commands[name]
    with command.make_context(name, [each.replace("=tokens", f"={file}") for each in options]) as context:
        given = context.params
    assert (program, given["plain"]) == ("fleetlore", True)
    host, _, port = given["http"].rpartition(":")
    assert host == "0.0.0.0" and relay["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}/readyz" in relay["healthcheck"]["test"][-1]


def test_one_metrics_port_everywhere(services: dict[str, Any], dockerfile: str) -> None:
    scrapes = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for scrape in scrapes for config in scrape["static_configs"] for target in config["targets"]]
    assert sorted(targets) == sorted(["relay:7411", *(f"{name}:{METRICS_PORT}" for name in ROLES)])
    assert f"EXPOSE {METRICS_PORT}" in dockerfile
    for name in ROLES:
        assert services[name]["environment"]["FLEETLORE_METRICS_PORT"] == METRICS_PORT
        assert f"http://127.0.0.1:{METRICS_PORT}/readyz" in services[name]["healthcheck"]["test"][-1]


def test_ports_are_bound_to_this_host_alone(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_is_mounted_exists(services: dict[str, Any]) -> None:
    declared = set(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"])
    mounted = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert {source for source in mounted if not source.startswith("./")} == declared
    assert all((ROOT / source).exists() for source in mounted if source.startswith("./"))


def test_what_the_image_copies_exists_and_is_not_ignored(dockerfile: str) -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \./\S*$", dockerfile, re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == allowed
    assert all((ROOT / source).exists() for source in sources)
    assert {"fleetlore", "models", "sinks", "streams"} <= sources


def test_the_image_takes_the_pytorch_that_the_package_allows(dockerfile: str) -> None:
    project = tomllib.loads((ROOT / "deploy/server/pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"]["policy"]
    (torch,) = [requirement for requirement in needed if requirement.startswith("torch")]
    assert f'"{torch}"' in dockerfile
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert [pin for pin in pinned if re.match(r"torch|nvidia|cuda|triton", pin)] == [torch]
