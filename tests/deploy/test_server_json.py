"""The entry for a registry of MCP servers names what this tree builds."""

import json
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from fleetlore.cli.app import build_app

ROOT = Path(__file__).parents[2]


def test_it_names_this_version_and_a_command_that_is_there() -> None:
    entry = json.loads((ROOT / "deploy/server.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [package] = entry["packages"]
    assert entry["version"] == package["version"] == project["version"]
    [source] = package["runtimeArguments"]
    name, _, extra = source["value"].partition("==")[0].removesuffix("]").partition("[")
    assert (name, extra in project["optional-dependencies"]) == (package["identifier"], True)
    assert source["value"].endswith(f"=={project['version']}") and name == project["name"]
    asked = [each["value"] for each in package["packageArguments"]]
    assert "MCP" in CliRunner().invoke(build_app(), [*asked, "--help"]).output
