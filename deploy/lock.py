"""Write what each image installs, with hashes, into deploy/requirements*.txt: `make lock`.

Versions are those of constraints.txt. PyTorch is left out there and here: its build for the CPU comes from
another index, which has other hashes than PyPI.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy"
HEAD = """\
# What an image installs beside PyTorch, each file by its hash. Made by `make lock`.
"""
#: Packages whose build each machine chooses, packages that they bring, and our own.
UNPINNED = re.compile(r"(torch|triton|nvidia-|cuda-|fleetlore)", re.IGNORECASE)
PYTHON = "3.12"


# What is installed for what the images run: extras of the agents' distribution and of the server's. Weights in an
# object store are a setting, so each image can reach one. A judge by an LLM (`llm`) is rare, so `openai` is left out.
ROLES = (("cli", "adapters", "personal", "relay", "s3"), ("console",))
LOCKS = {
    "requirements.txt": ROLES,
    "requirements-trainer.txt": (ROLES[0], (*ROLES[1], "policy")),
    "requirements-box.txt": (ROLES[0], (*ROLES[1], "embedded")),
}


def requirements(lock: str) -> list[str]:
    """What both distributions require with the extras of a lock."""
    agents = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((ROOT / "deploy" / "server" / "pyproject.toml").read_text())["project"]
    found = {*agents["dependencies"], *server["dependencies"]}
    for project, extras in zip((agents, server), LOCKS[lock], strict=True):
        for extra in extras:
            found.update(project["optional-dependencies"][extra])
    # To build our own without fetching anything.
    found.update(["setuptools>=77", "wheel"])
    return sorted(each for each in found if not each.startswith("fleetlore"))


def write(lock: str) -> None:
    """Resolve a lock, and write it with the hash of each file."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, locked = Path(folder, "requirements.in"), Path(folder, "requirements.txt")
        wanted.write_text("\n".join(requirements(lock)) + "\n")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", wanted, "--output-file", locked]
        options = ["--generate-hashes", "--no-annotate", "--no-header", "--python-version", PYTHON]
        options += ["--python-platform", "linux", "--constraint", ROOT / "constraints.txt"]
        subprocess.run([*command, *options], check=True)
        packages = re.findall(r"^\S.*(?:\n .*)*\n", locked.read_text(), re.MULTILINE)
    (FOLDER / lock).write_text(HEAD + "".join(each for each in packages if not UNPINNED.match(each)))


if __name__ == "__main__":
    for each in LOCKS:
        write(each)
