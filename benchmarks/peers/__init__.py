"""Run what fleetlore is measured against: a script each, in a separate process that ends with one JSON line.

Peers that need older packages than fleetlore get a separate environment below the user's cache folder, made at their
first use. So their pins do not change what fleetlore runs on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ModelUnavailable, StackError

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 600.0

# drain3 pins cachetools.
OWN_ENVIRONMENTS = {
    "drain3": ("drain3==0.9.11",),
    "detect-secrets": ("detect-secrets==1.5.0",),
}


def interpreter(peer: str | None = None) -> str:
    """The Python that has the peer: this one, or that of a separate environment.

    Raises:
        ModelUnavailable: it could not be installed.
    """
    if peer is None:
        return sys.executable
    wanted = OWN_ENVIRONMENTS[peer]
    named = hashlib.sha256(f"{sys.version} {wanted}".encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "fleetlore-benchmarks" / f"{peer}-{named}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        installed = subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if installed.returncode:
            raise ModelUnavailable(f"{peer} could not be installed into {folder}: {installed.stderr[-500:]}")
        done.touch()
    return str(python)


def run(script: str, *arguments: object, peer: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
    """Run `benchmarks/peers/SCRIPT.py`, or a module `benchmarks.…`, to its end; return what its last line says.

    Raises:
        StackError: it failed, or said nothing in time; a peer that hangs is no peer that is slow.
    """
    what = ["-m", script] if "." in script else [str(Path(__file__).parent / f"{script}.py")]
    command = [interpreter(peer), *what, *(str(each) for each in arguments)]
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
