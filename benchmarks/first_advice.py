"""Time a newcomer by the clock, from an empty folder to the first advice: `python -m benchmarks.first_advice`.

It follows README word for word in a fresh clone. It makes `.venv`, starts `fleetlore up --data lore`, and runs the
README's agent until it gets advice that another process caused. The clone is of the last commit. pip's own cache is
left out, so every wheel comes from the index.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import command_app
from fleetlore.errors import StackError

ROOT = Path(__file__).parents[1]
BAR_SECONDS = 180.0
START_SECONDS = 120.0
MOST_RUNS = 10
# The file that the stack writes when it is ready.
STACK_FILE = "stack.json"


def first_advice(
    pip_flags: Annotated[str, typer.Option(help="For pip, e.g. the index of PyTorch's CPU builds.")] = "",
) -> None:
    """Print the seconds of each step."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        clone = Path(folder) / "fleetlore"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        (agent,) = re.findall(r"^```python\n(.*?)^```", (clone / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        (clone / "agent.py").write_text(agent)
        seconds = dict(_steps(clone, pip_flags))
    total = sum(seconds.values())
    for step, each in seconds.items():
        typer.echo(f"{each:7.1f} s  {step}")
    typer.echo(f"{total:7.1f} s  in all, bar {BAR_SECONDS:.0f}: {'met' if total <= BAR_SECONDS else 'MISSED'}")


def _steps(clone: Path, pip_flags: str) -> Iterator[tuple[str, float]]:
    # Hide the current environment.
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environ |= {"PIP_NO_CACHE_DIR": "1", "FLEETLORE_HOLDOUT_SHARE": "0"}
    began = time.monotonic()
    install = ["make", "--quiet", ".venv/.installed-demo", f"PIP_FLAGS={pip_flags}"]
    subprocess.run(install, cwd=clone, env=environ, check=True, stdout=subprocess.DEVNULL)
    yield "pip install", time.monotonic() - began
    began = time.monotonic()
    with _stack(clone, environ):
        yield "fleetlore up", time.monotonic() - began
        began = time.monotonic()
        for _ in range(MOST_RUNS):
            python = [".venv/bin/python", "agent.py"]
            done = subprocess.run(python, cwd=clone, env=environ, check=True, capture_output=True, text=True)
            if "Worked:" in done.stdout:
                yield "an agent that fails, and one that is advised", time.monotonic() - began
                return
    raise StackError(f"no advice came in {MOST_RUNS} runs of the README's agent")


@contextmanager
def _stack(clone: Path, environ: dict[str, str]) -> Iterator[None]:
    up = [".venv/bin/fleetlore", "up", "--data", "lore"]
    process = subprocess.Popen(up, cwd=clone, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_SECONDS
        while not (clone / "lore" / STACK_FILE).exists():
            if process.poll() is not None or time.monotonic() > until:
                raise StackError(f"`fleetlore up` did not start in {START_SECONDS:.0f} s")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


app = command_app(first_advice)

if __name__ == "__main__":
    app()
