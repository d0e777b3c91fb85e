"""Build the distributions and install each into an empty environment: `make wheels`.

An agent gets five dependencies, and nothing named `models`, `streams` or `sinks`, which would shadow modules of its
own. A server gets every command.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from release import build_wheels

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"

AGENT = """
import importlib.metadata, importlib.util, sys
import fleetlore
assert "site-packages" in fleetlore.__file__, f"imported {fleetlore.__file__}, not the wheel"
others = [name for name in ("models", "streams", "sinks", "tests", "benchmarks") if importlib.util.find_spec(name)]
assert not others, f"an agent's environment gets {others}"
heavy = ("torch", "faust", "pymilvus", "peft", "fleetlore_encoder", "prometheus_client", "typer", "fsspec")
installed = [name for name in heavy if importlib.util.find_spec(name)]
assert not installed, f"an agent gets {installed} without asking for an extra"
# No optional dependency at module level, but for the rooms that an extra is for.
import pkgutil
rooms = ("fleetlore.http_server", "fleetlore.relay", "fleetlore.cli", "fleetlore.join")
rooms += ("fleetlore.redact.personal",)
for module in pkgutil.walk_packages(fleetlore.__path__, "fleetlore."):
    if not module.name.startswith(rooms):
        __import__(module.name)
print("fleetlore", importlib.metadata.version("fleetlore"), "imports without extras;", len(sys.modules), "modules")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder) / "wheels"
        build_wheels(ROOT, wheels)
        (agent,) = wheels.glob("fleetlore-*.whl")
        (server,) = wheels.glob("fleetlore_server-*.whl")
        _hold(agent, {"fleetlore"})
        _hold(server, {"models", "sinks", "streams"})
        python = _environment(Path(folder) / "agent")
        _pip(python, "install", "--constraint", str(CONSTRAINTS), str(agent))
        subprocess.run([python, "-c", AGENT], check=True, cwd=folder)
        python = _environment(Path(folder) / "server")
        # Its requirements are gigabytes and stand beside this interpreter already; what is tried is the wheel.
        (packages,) = (Path(folder) / "server").glob("lib/python3*/site-packages")
        (packages / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        _pip(python, "install", "--no-deps", "--ignore-installed", str(agent), str(server))
        listed = subprocess.run(
            [python.parent / "fleetlore", "--help"], check=True, cwd=folder, capture_output=True, text=True
        ).stdout
        missing = [name for name in ("up", "worker", "trainer", "export", "backtest") if name not in listed]
        assert not missing and "not installed" not in listed, listed
        print("fleetlore-server: every command is there")


def _hold(wheel: Path, packages: set[str]) -> None:
    """Check that a wheel has these packages alone: the laboratory (`benchmarks`) is in none."""
    with ZipFile(wheel) as archive:
        held = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}
    assert held == packages, f"{wheel.name} holds {sorted(held)}"


def _environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    main()
