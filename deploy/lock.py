"""Write deploy/requirements.txt, what the image installs, with hashes: `make lock`.

Versions are those of constraints.txt. PyTorch stays out, as in there: its build for the CPU comes from an index of its
own, which gives no hashes that PyPI has.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "deploy" / "requirements.txt"
HEAD = """\
# What the image installs beside PyTorch, each file by its hash. Made by `make lock`.
"""
#: Whose builds are each machine's choice, with what comes with them; and our own.
UNPINNED = re.compile(r"(torch|triton|nvidia-|cuda-|fleetlore)", re.IGNORECASE)
PYTHON = "3.12"


def requirements() -> list[str]:
    """What both distributions require with the extras that the image has."""
    agents = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((ROOT / "deploy" / "server" / "pyproject.toml").read_text())["project"]
    found = {*agents["dependencies"], *server["dependencies"]}
    # What a setting of a role asks for: a model that judges, weights in an object store.
    for project, extras in ((agents, ("cli", "adapters", "personal", "s3")), (server, ("console", "llm"))):
        for extra in extras:
            found.update(project["optional-dependencies"][extra])
    # To build our own without fetching anything.
    found.update(["setuptools>=77", "wheel"])
    return sorted(each for each in found if not each.startswith("fleetlore"))


def lock() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted, locked = Path(folder, "requirements.in"), Path(folder, "requirements.txt")
        wanted.write_text("\n".join(requirements()) + "\n")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", wanted, "--output-file", locked]
        options = ["--generate-hashes", "--no-annotate", "--no-header", "--python-version", PYTHON]
        options += ["--python-platform", "linux", "--constraint", ROOT / "constraints.txt"]
        subprocess.run([*command, *options], check=True)
        packages = re.findall(r"^\S.*(?:\n .*)*\n", locked.read_text(), re.MULTILINE)
    LOCK.write_text(HEAD + "".join(each for each in packages if not UNPINNED.match(each)))


if __name__ == "__main__":
    lock()
