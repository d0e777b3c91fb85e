"""Take the newest versions that both pyproject.toml allow into constraints.txt: `make upgrade`.

Installs everything without constraints into a new virtual environment and writes down what came. Run the tests after
it, and commit the file with what had to change. PyTorch stays out: pyproject.toml bounds it, and whether it is the
CPU's or a CUDA build is the choice of each machine, together with the packages of CUDA that come with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from lock import UNPINNED

ROOT = Path(__file__).parents[1]
HEAD = """\
# Versions that the tests passed with. Made by `make upgrade`; a release of another package never changes a build of
# ours. PyTorch only within the bounds of pyproject.toml, given here as well so that pip does not look at newer ones
# first.
torch>=2.9,<2.16
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
        server = f"{ROOT}/deploy/server[embedded,console,llm,policy]"
        subprocess.run(
            [python, "-m", "pip", "install", f"{ROOT}/deploy/encoder", f"{ROOT}[dev,docs,s3]", server], check=True
        )
        frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    pins = [line for line in frozen.splitlines() if "==" in line and not UNPINNED.match(line)]
    (ROOT / "constraints.txt").write_text(HEAD + "".join(f"{pin}\n" for pin in pins))


if __name__ == "__main__":
    main()
