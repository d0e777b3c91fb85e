"""Test each integration with the oldest and the newest versions of its packages that pyproject.toml allows.

Each run has an environment of its own. The integration's packages come first, as a user's installer picks them, and
then what fleetlore and its tests need. With `--python` for each interpreter. Writes docs/results/newest.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results/newest.md"
TOOLS = ["pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "pyyaml", "confluent-kafka", "anthropic", "openai"]
PROJECTS = ("--editable", f"{ROOT}[cli,relay]", "--editable", f"{ROOT}/deploy/server[embedded]")
# The samples say whether a package still writes what its reader was made for.
SAMPLES = "transcripts/test_samples.py"
# Six months back when the bounds were last set. The oldest versions run beside packages of that day, as they were made
# for: openai-agents 0.17 fails with an `openai` of three months later.
OLDEST_DAY = "2026-05-29"
RESOLUTIONS = {
    "oldest": ("--resolution", "lowest-direct", "--exclude-newer", OLDEST_DAY),
    "newest": ("--resolution", "highest"),
}
# Only the newest version must write the form of the newest sample: any other's form must be read.
LEFT_OUT = {"oldest": " and not writes_what_was_recorded", "newest": ""}
# Packages of that day warn of tools that are newer than they are.
WARNINGS = {"oldest": ("-W", "default"), "newest": ()}


@dataclass(frozen=True)
class _Integration:
    """`tests`: of `tests/fleetlore`. `doors`: which of `test_every_door.py`. `packages`: those that no extra has."""

    tests: tuple[str, ...]
    doors: str = "otel"  # none
    packages: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


INTEGRATIONS = {
    "langchain": _Integration(("join/test_langchain.py", SAMPLES), "langchain"),
    "openai-agents": _Integration(("join/test_openai_agents.py", SAMPLES), "openai_agents"),
    "pydantic-ai": _Integration(("join/test_pydantic_ai.py", SAMPLES), "pydantic_ai"),
    "litellm": _Integration(("join/test_litellm.py",), "litellm", tools=("google-cloud-aiplatform",)),
    "claude": _Integration(("join/test_claude.py",), "claude and not claude_code"),
    "mcp": _Integration(
        ("join/test_mcp_calls.py", "join/test_mcp_proxy.py", SAMPLES), "mcp", tools=("mcp-server-time",)
    ),
    "model clients": _Integration(
        ("join/test_model_clients.py", SAMPLES), "wrapped or gateway", packages=("anthropic", "openai")
    ),
    "otel": _Integration(
        ("join/test_otel.py", "join/test_otel_evaluations.py"),
        packages=("opentelemetry-sdk",),
        tools=(
            "pydantic-ai-slim", "openinference-instrumentation", "opentelemetry-exporter-otlp-proto-common", "httpx2",
            "zstandard",
        ),
    ),
    "relay": _Integration(("relay",), "gateway", tools=("jsonschema-rs",)),
}  # fmt: skip


def _requirements(name: str) -> list[str]:
    """Return what the extra of an integration requires, or the bounds of its packages in any extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    integration = INTEGRATIONS[name]
    wanted = {each for extra in extras.values() for each in extra if _package(each) in integration.packages}
    wanted |= {each for each in extras.get(name, ()) if not each.startswith("fleetlore")}
    return sorted(wanted)


def _package(requirement: str) -> str:
    return re.split(r"[<>=~!\[ ]", requirement)[0]


def _run(folder: Path, name: str, which: str, interpreter: str) -> tuple[list[str], str, bool]:
    """Return the versions of the packages, how the tests ended, and whether all passed."""
    wanted, integration = _requirements(name), INTEGRATIONS[name]
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", interpreter, folder], check=True)
    python = folder / "bin/python"
    install = [*uv, "pip", "install", "--python", python]
    subprocess.run([*install, *RESOLUTIONS[which], *wanted], check=True)
    listed = _versions(uv, python, wanted)
    # Exact versions: without them the resolver may trade one for a newer tool.
    subprocess.run([*install, *PROJECTS, *TOOLS, *integration.tools, *listed], check=True)
    tests = [ROOT / "tests/fleetlore" / each for each in (*integration.tests, "join/test_every_door.py")]
    chosen = f"(not every_door or {integration.doors}){LEFT_OUT[which]}"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WARNINGS[which], *tests, "-k", chosen]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    if done.returncode:
        print("\n".join(lines[-60:]), file=sys.stderr)
    counts = {kind: number for number, kind in re.findall(r"(\d+) (failed|error|passed|skipped)", lines[-1])}
    passed = counts.pop("passed", "0")
    others = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    return listed, f"{passed} ({others})" if others else passed, not done.returncode


def _versions(uv: list[str], python: Path, wanted: list[str]) -> list[str]:
    command = [*uv, "pip", "freeze", "--python", python]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [each for each in listed if each.split("==")[0] in map(_package, wanted)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(INTEGRATIONS), help="only these; the page then stays")
    parser.add_argument("--python", action="append", help="an interpreter to run with; may be given several times")
    options = parser.parse_args()
    pythons = options.python or [sys.executable]
    rows, whole = [], True
    for name in options.names:
        cells = [name]
        for which in RESOLUTIONS:
            for number, python in enumerate(pythons):
                with tempfile.TemporaryDirectory(prefix="fleetlore-newest-") as folder:
                    versions, cell, passed = _run(Path(folder), name, which, python)
                cells += [cell] if number else [" ".join(versions), cell]
                whole &= passed
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    if options.names == list(INTEGRATIONS):
        PAGE.write_text(_head(pythons) + "\n".join(rows) + "\n")
    sys.exit(not whole)


def _head(pythons: list[str]) -> str:
    asked = "import sys; print(f'Python {sys.version_info[0]}.{sys.version_info[1]}')"
    names = [subprocess.run([each, "-c", asked], check=True, capture_output=True, text=True) for each in pythons]
    columns = " | ".join([each.stdout.strip() for each in names])
    return f"""# Integrations on the oldest and newest packages

`make newest` tests each integration with the oldest and the newest versions that `pyproject.toml` allows. The numbers
are tests that passed.

| integration | oldest | {columns} | newest | {columns} |
| --- |{" --- |" * (2 + 2 * len(names))}
"""


if __name__ == "__main__":
    main()
