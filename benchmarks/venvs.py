"""Make a separate virtual environment, once, in the user's cache, for packages that the project does not run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fleetlore.errors import ModelUnavailable

CACHE = Path.home() / ".cache" / "fleetlore" / "venvs"


def python_with(*requirements: str, cache: Path = CACHE) -> Path:
    """The interpreter of an environment with these pinned requirements.

    Raises:
        ModelUnavailable: pip cannot install them.
    """
    folder = cache / "-".join(requirements).replace("==", "-")
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
        if not made.returncode:
            asked = [str(python), "-m", "pip", "install", "--quiet", *requirements]
            made = subprocess.run(asked, capture_output=True, text=True)
        if made.returncode:
            raise ModelUnavailable(f"{' '.join(requirements)}: {made.stderr.strip()[-300:]}")
        done.touch()
    return python
