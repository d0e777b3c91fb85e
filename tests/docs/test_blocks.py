"""Run or check every Python and console block of the README and the guides.

Python blocks of the README run against a real embedded stack; those of the guides run in order, in one namespace a
page, against an embedded broker. Console lines are not run where that would start containers, install packages or
train: their targets, options, extras, variables and files are checked instead. tests/deploy/test_compose.py runs
`openssl`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from benchmarks.__main__ import NAMES
from fleetlore import Fleet
from fleetlore.cli.app import build_app
from fleetlore.config import variables
from streams.embedded.stack import Stack

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/guide/**/*.md")))
GUIDES = tuple(page for page in PAGES[2:] if "```python\n" in page.read_text())
MAKE = re.compile(r"^([a-z-]+):", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for block in blocks(page, "console"):
            for line in block.splitlines():
                assert line.startswith("$ "), f"{page.name}: {line!r} is no command"
                yield page, line[2:]


# --- Python ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lore(tmp_path: Path) -> AsyncIterator[Path]:
    """A folder in which `fleetlore up --data lore` runs."""
    async with Stack(tmp_path / "lore", workers=1, trainer=False):
        yield tmp_path


async def run_script(code: str, folder: Path) -> str:
    script = folder / "agent.py"
    script.write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLEETLORE_HOLDOUT_SHARE": "0"}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, script], cwd=folder, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
async def test_the_agent_of_the_readme_gets_advice_in_its_second_run(lore: Path) -> None:
    (agent,) = blocks(ROOT / "README.md", "python")
    assert (await run_script(agent, lore)).strip() == "", "nothing is known yet"
    for _ in range(20):  # the pipeline needs a moment on a busy machine
        second = await run_script(agent, lore)
        if second.startswith("<fleet-memory "):
            break
    assert second.startswith("<fleet-memory ")
    assert second.count("- Use `index=products-eu` instead of `index=products` in search.\n") == 1


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
async def test_the_examples_of_a_guide_run_in_order(page: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two stubs: `search`, the reader's tool, and `model`, the reader's model."""
    monkeypatch.setenv("FLEETLORE_BROKER", address)

    async def search(index: str, query: str = "") -> str:
        return f"3 hits for {query}"

    async def model(context: str) -> str:
        return "I search for it."

    async with Fleet("guide") as fleet:
        names: dict[str, Any] = {"search": search, "model": model, "fleet": fleet}
        for block in blocks(page, "python"):
            code = compile(block, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            # The example that opens a fleet closes it again; the others get the one above.
            names["fleet"] = fleet
            result = eval(code, names)  # top-level await gives a coroutine
            if inspect.isawaitable(result):
                await result


# --- console --------------------------------------------------------------------------------------------------------


def check_fleetlore(arguments: list[str], folder: Path) -> None:
    """The command exists and takes these options; nothing is run."""
    command: Any = typer.main.get_command(build_app())
    context = None
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        assert name in command.commands, f"fleetlore has no command {name}"
        command = command.commands[name]
    for file in ("logs", "README.md"):  # arguments that must exist
        (folder / file).mkdir() if file == "logs" else (folder / file).touch()
    context = command.make_context(command.name, arguments)
    context.close()


def check_pip(arguments: list[str]) -> None:
    """The folders exist and have the extras; PyTorch's index is the only one named."""
    projects = {".": ROOT / "pyproject.toml", "./deploy/server": ROOT / "deploy" / "server" / "pyproject.toml"}
    projects["./deploy/encoder"] = ROOT / "deploy" / "encoder" / "pyproject.toml"
    for target in arguments:
        if target.startswith("https:"):
            assert target == "https://download.pytorch.org/whl/cpu"
        elif not target.startswith("-") and target != "install":
            folder, _, extras = target.partition("[")
            known = tomllib.loads(projects[folder].read_text())["project"].get("optional-dependencies", {})
            assert {*filter(None, extras.rstrip("]").split(","))} <= {*known}


def check_module(arguments: list[str]) -> None:
    module, *rest = arguments
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists(), module
    assert module != "benchmarks" or not rest or rest[0] in NAMES


def check_secret(arguments: list[str]) -> None:
    """The chart looks for a Secret of this name, with this key."""
    *create, name, source = arguments
    assert create == ["create", "secret", "generic"]
    key = source.partition("=")[2].partition("=")[0]
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "fleetlore" / "values.yaml").read_text())
    assert {"name": name, "key": key} in (values["trainer"]["signingKey"], values["console"]["token"])


@pytest.mark.parametrize(
    ("page", "line"), list(commands()), ids=lambda each: each.stem if isinstance(each, Path) else each
)
def test_a_command_of_the_pages_is_one(page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line, comments=True)
    match program.removeprefix(".venv/bin/"):
        case "fleetlore":
            check_fleetlore(arguments, tmp_path)
        case "make":
            assert arguments[0] in MAKE.findall((ROOT / "Makefile").read_text())
        case "pip":
            check_pip(arguments)
        case "python":
            assert arguments[0] == "-m"
            check_module(arguments[1:])
        case "export":
            assert {each.partition("=")[0] for each in arguments} <= {*variables()}
        case "docker":
            assert (ROOT / ("docker-compose.yml" if arguments[0] == "compose" else arguments[2])).exists()
        case "openssl":
            pass  # run by tests/deploy/test_compose.py
        case "helm":
            assert (ROOT / arguments[2] / "Chart.yaml").exists()
        case "kubectl":
            check_secret(arguments)
        case other:
            pytest.fail(f"nothing checks {other}")
