"""Test each door with the oldest and with the newest version of its package that pyproject.toml allows.

Each has an environment of its own over the one that this runs in: its package and all that this requires, as a user's
installer picks them; the tests' own tools come from below. Writes docs/results/newest.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results/newest.md"
# The samples say whether a package still writes what its reader was made for.
SAMPLES = "../transcripts/test_samples.py"
TESTS = {
    "langchain": ("test_langchain.py", SAMPLES),
    "openai-agents": ("test_openai_agents.py", SAMPLES),
    "pydantic-ai": ("test_pydantic_ai.py", SAMPLES),
    "claude": ("test_claude.py",),
    "mcp": ("test_mcp_calls.py", "test_mcp_proxy.py", SAMPLES),
}
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
HEAD = f"""# Doors on today's packages

Each door's own tests with the oldest and with the newest version of its packages that `pyproject.toml` allows, in
environments of their own. `make newest` writes this page; Python {sys.version_info[0]}.{sys.version_info[1]}.

| door | which | versions | tests |
| --- | --- | --- | --- |
"""


def requirements(extra: str) -> list[str]:
    """Return what an extra requires beside packages of fleetlore."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [each for each in extras[extra] if not each.startswith("fleetlore")]


def run(folder: Path, extra: str, which: str) -> tuple[str, str, bool]:
    """The versions that were taken, how the tests ended, and whether all passed."""
    wanted = requirements(extra)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, folder], check=True)
    python = folder / "bin/python"
    asked = [*uv, "pip", "install", "--python", python, "--resolution", RESOLUTIONS[which], *wanted]
    subprocess.run(asked, check=True)
    [own] = folder.glob("lib/python*/site-packages")
    below = sysconfig.get_path("purelib")
    (own / "below.pth").write_text(f"{ROOT}\nimport site; site.addsitedir({below!r})\n")
    names = [re.split(r"[<>=~!\[ ]", each)[0] for each in wanted]
    listed = subprocess.run([*uv, "pip", "freeze", "--python", python], check=True, capture_output=True, text=True)
    versions = [line.replace("==", " ") for line in listed.stdout.splitlines() if line.split("==")[0] in names]
    tests = [str(ROOT / "tests/fleetlore/join" / each) for each in TESTS[extra]]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    said = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    if done.returncode:
        print("\n".join(said[-40:]), file=sys.stderr)
    return ", ".join(versions), re.sub(r" in [\d.]+s.*", "", said[-1]).strip("= "), not done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("doors", nargs="*", default=list(TESTS), help="of these alone; the page is then left as it is")
    doors = parser.parse_args().doors
    rows, whole = [], True
    for extra in doors:
        for which in RESOLUTIONS:
            with tempfile.TemporaryDirectory(prefix="fleetlore-newest-") as folder:
                versions, said, passed = run(Path(folder), extra, which)
            rows.append(f"| {extra} | {which} | {versions} | {said} |")
            print(rows[-1], flush=True)
            whole &= passed
    if doors == list(TESTS):
        PAGE.write_text(HEAD + "\n".join(rows) + "\n")
    sys.exit(not whole)


if __name__ == "__main__":
    main()
