"""Installing prints no warning: a page of them would be the first thing that a new user sees."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The folders that the Makefile and README install.
PROJECTS = (".", "deploy/encoder", "deploy/server")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "fleetlore", "models", "sinks", "streams", "deploy")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, since a build writes into the folder of its project."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


# pip prints each warning of a build backend, whatever its category.
BUILD = """
import sys, warnings
from setuptools import build_meta

with warnings.catch_warnings(record=True) as found:
    getattr(build_meta, sys.argv[1])(sys.argv[2])
for warning in found:
    print(f"{warning.category.__name__}: {warning.message}", file=sys.stderr)
sys.exit(len(found))
"""


@pytest.mark.parametrize("hook", ["build_editable", "build_wheel"])
@pytest.mark.parametrize("project", PROJECTS)
@pytest.mark.long
def test_a_build_gives_no_warning(checkout: Path, project: str, hook: str, tmp_path: Path) -> None:
    """Calls the hook that pip calls, without the network that pip's own environment for a build needs."""
    command = [sys.executable, "-c", BUILD, hook, str(tmp_path)]
    done = subprocess.run(command, cwd=checkout / project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.whl"))) == 1
