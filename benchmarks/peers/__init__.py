"""Run what fleetlore is measured against: a script each, in a separate process that ends with one JSON line.

Peers that need older packages than fleetlore get a separate environment below the user's cache folder, made at their
first use. So their pins do not change what fleetlore runs on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from benchmarks.venvs import python_with
from fleetlore.errors import StackError

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 600.0

# drain3 pins cachetools.
OWN_ENVIRONMENTS = {"drain3": ("drain3==0.9.11",), "detect-secrets": ("detect-secrets==1.5.0",)}


def run(script: str, *arguments: object, peer: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
    """Run `benchmarks/peers/SCRIPT.py`, or a module `benchmarks.…`, to its end; return what its last line says.

    Raises:
        StackError: it failed, or said nothing in time; a peer that hangs is no peer that is slow.
    """
    what = ["-m", script] if "." in script else [str(Path(__file__).parent / f"{script}.py")]
    python = sys.executable if peer is None else python_with(*OWN_ENVIRONMENTS[peer])
    command = [str(python), *what, *(str(each) for each in arguments)]
    # Behind the guard, which ends it when this process dies: its standard input is a pipe that only we hold open.
    readable, held = os.pipe()
    with open(held, "wb") as hold, open(readable, "rb") as stdin:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.embedded.supervisor", *command],
            cwd=ROOT,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            said, errors = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            hold.close()
            _, errors = process.communicate()
            last = errors[-500:].decode(errors="replace")
            raise StackError(f"{script} did not end within {timeout_seconds:.0f} s: {last}") from None
    lines = said.splitlines()
    if process.returncode or not lines:
        raise StackError(
            f"{script} ended with exit code {process.returncode}: {errors[-1000:].decode(errors='replace')}"
        )
    return orjson.loads(lines[-1])
