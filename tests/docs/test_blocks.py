"""Run or check every Python and command block of the README and the guides.

Python blocks of the README run against a real embedded stack; those of the guides run in order, in one namespace a
page, against an embedded broker. Command blocks run against an embedded stack too. A comment before a block says so if
another file runs it (`<!-- run by PATH -->`) or nothing does (`<!-- not run: REASON -->`). The targets, options,
extras, variables, services and files of every command are checked, also in running text.
"""

import ast
import asyncio
import inspect
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from functools import cache, partial
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
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/guide/**/*.md")))
# `host.md` asks a stack of installed wheels: tests/deploy/test_release.py.
GUIDES = tuple(page for page in PAGES[2:] if "```python\n" in page.read_text() and page.name != "host.md")
MAKE = re.compile(r"^([a-z-]+):", re.MULTILINE)
BLOCK = re.compile(r"(?:^<!-- (.+?) -->\n)?^```(?:console|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`((?:fleetlore [a-z]|docker (?:build|compose) |make )[^`]+)`(?!`)")
# Why a block is run nowhere in CI.
REASONS = {
    "changes the checkout", "changes the environment alone", "installs everything once more", "needs Docker",
    "needs Docker and a cluster", "needs a cluster", "needs a fleet", "needs a language model",
    "needs versions of your own", "serves until Ctrl-C",
}  # fmt: skip


@cache
def the_command() -> Any:
    return typer.main.get_command(build_app())


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for block in blocks(page, "console"):
            for line in block.splitlines():
                assert line.startswith("$ "), f"{page.name}: {line!r} is no command"
                yield page, line[2:]


def command_blocks() -> Iterator[tuple[Path, str, str]]:
    """Yield page, mark ("" without one) and content of each command block."""
    for page in PAGES:
        for mark, content in BLOCK.findall(page.read_text()):
            yield page, mark, content


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


def resolved(arguments: list[str]) -> tuple[Any, list[str]]:
    """Return the command that these words name, and the words after its name."""
    command: Any = the_command()
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        two = " ".join(arguments[:2])
        name = two if two in command.commands else arguments[0]
        arguments = arguments[len(name.split()) :]
        assert name in command.commands, f"fleetlore has no command {name}"
        command = command.commands[name]
    return command, arguments


def check_fleetlore(arguments: list[str], folder: Path) -> None:
    """The command exists and takes these options; nothing is run."""
    command, arguments = resolved(arguments)
    for file in ("logs", "README.md", "lore.jsonl"):  # arguments that must exist
        (folder / file).mkdir(exist_ok=True) if file == "logs" else (folder / file).touch()
    context = command.make_context(command.name, arguments[: arguments.index(">")] if ">" in arguments else arguments)
    context.close()


def check_pip(arguments: list[str]) -> None:
    """The folders exist and have the extras; PyTorch's index is the only one named."""
    projects = {".": ROOT / "pyproject.toml", "./deploy/server": ROOT / "deploy" / "server" / "pyproject.toml"}
    projects |= {"fleetlore": projects["."], "fleetlore-server": projects["./deploy/server"]}
    projects["./deploy/encoder"] = ROOT / "deploy" / "encoder" / "pyproject.toml"
    for target in arguments:
        if target.startswith("https:"):
            assert target == "https://download.pytorch.org/whl/cpu"
        elif not target.startswith(("-", "opentelemetry-")) and target != "install":
            folder, _, extras = target.partition("[")
            known = tomllib.loads(projects[folder].read_text())["project"].get("optional-dependencies", {})
            assert {*filter(None, extras.rstrip("]").split(","))} <= {*known}


def check_module(arguments: list[str]) -> None:
    module, *rest = arguments
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists(), module
    assert module != "benchmarks" or not rest or rest[0] in NAMES


def check_secret(arguments: list[str]) -> None:
    """The chart looks for a Secret of this name, with this key."""
    _, _, kind, name, *sources = arguments
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "fleetlore" / "values.yaml").read_text())
    assert arguments[:2] == ["create", "secret"] and kind in ("generic", "tls")
    if kind == "generic":
        key = sources[0].partition("=")[2].partition("=")[0]
        named = (values["trainer"]["signingKey"], values["console"]["token"], values["relay"]["tokens"])
        assert {"name": name, "key": key} in named


def check_docker(arguments: list[str]) -> None:
    """The files exist, and the services of Compose."""
    if arguments[0] != "compose":
        assert (ROOT / arguments[2]).exists()
        return
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    match [each for each in arguments[1:] if not each.startswith("-")]:
        case ["logs" | "exec" | "restart" | "run", service, *_]:
            assert service in services, f"docker-compose.yml has no service {service}"
        case [subcommand, *_]:
            assert subcommand in ("build", "config", "down", "ps", "pull", "up")


def check_span(words: list[str]) -> None:
    """The command exists and has these options; the arguments may be placeholders."""
    program, *arguments = words
    if program == "docker":
        check_docker(arguments)
        return
    if program == "make":
        assert arguments[0] in MAKE.findall((ROOT / "Makefile").read_text()), f"no target {arguments[0]}"
        return
    command, arguments = resolved(arguments)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = itertools.takewhile(lambda word: word != "--", arguments)
    assert {word.partition("=")[0] for word in own if word.startswith("--")} <= {*known, "--help"}


def spans() -> list[tuple[Path, str]]:
    """The commands in running text."""
    found = []
    for page in sorted({*PAGES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        found += [(page, " ".join(span.split())) for span in SPAN.findall(text)]
    return found


@for_each("page, span", *spans())
def test_a_command_in_running_text_is_one(page: Path, span: str) -> None:
    check_span(shlex.split(span.replace("…", "")))


@for_each("page, mark, content", *[each for each in command_blocks() if each[1]])
def test_a_mark_names_what_runs_the_block_or_why_nothing_does(page: Path, mark: str, content: str) -> None:
    kind, _, about = mark.partition("not run: ")
    if not kind:
        assert about in REASONS
        return
    file = mark.removeprefix("run by ")
    # One that runs a page names it, or its block's program.
    assert file != mark and {page.name, content.split()[1], content.split()[0]} & {*words_of(ROOT / file)}


def words_of(file: Path) -> list[str]:
    return re.findall(r"[\w.-]+", file.read_text())


def test_ci_runs_the_first_block_of_the_readme_word_for_word() -> None:
    _, mark, content = next(command_blocks())
    assert mark == "run by .ci/run"
    printed = subprocess.run(["sh", ROOT / ".ci/readme-commands"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [line.removeprefix("$ ") for line in content.splitlines()]
    assert [line.partition("#")[0].strip() for line in printed.splitlines()] == ["make demo", "make test"]
    assert "readme-commands" in (ROOT / ".ci/run").read_text()


def logged_chat(number: int) -> dict[str, Any]:
    """A logged session in which the first search fails and the second works."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"find chair {number}"}]
    for id, index, said in (("1", "products", "KeyError: no index products"), ("2", "products-eu", "three chairs")):
        function = {"name": "search", "arguments": json.dumps({"index": index})}
        call = {"id": id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": id, "content": said})
    return {"messages": messages, "reward": 1.0, "agent": f"agent {number}", "task": f"shop {number}"}


@pytest.mark.long
async def test_the_command_blocks_without_a_mark_run_in_order(tmp_path: Path) -> None:
    """On a stack that nothing has reached yet, in a folder with logs of two forms."""
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(ROOT / "tests/data/claude-code-2.1.332.jsonl", logs)
    (logs / "chats.jsonl").write_text("\n".join(json.dumps(logged_chat(number)) for number in range(12)))
    async with Stack(tmp_path / "lore", workers=1, trainer=False) as stack:
        environ = {**os.environ, **stack.settings.to_env(), "PYTHONPATH": str(ROOT)}
        for page, mark, content in command_blocks():
            for line in [] if mark else content.splitlines():
                program, *arguments = shlex.split(line.removeprefix("$ "), comments=True)
                assert program == "fleetlore", f"{page.name}: {line}: run it here, or mark its block"
                run = partial(subprocess.run, cwd=tmp_path, env=environ, capture_output=True, text=True)
                done = await asyncio.to_thread(run, [sys.executable, "-m", "fleetlore.cli.main", *arguments])
                assert done.returncode == 0, f"{page.name}: {line}: {done.stdout}{done.stderr}"


@for_each("page, line", *commands())
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
        case ".":
            assert arguments == [".venv/bin/activate"]
        case "docker":
            check_docker(arguments)
        case "uvx" | "opentelemetry-instrument":  # the packages are installed by tests/deploy/test_traces.py
            check_fleetlore(arguments[arguments.index("fleetlore") + 1 :], tmp_path)
        case "openssl":
            pass  # run by tests/deploy/test_compose.py
        case "helm":
            assert (ROOT / arguments[2] / "Chart.yaml").exists()
        case "kubectl":
            check_secret(arguments)
        case other:
            pytest.fail(f"nothing checks {other}")
