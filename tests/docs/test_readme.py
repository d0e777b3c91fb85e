from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_session_to_copy_runs_even_without_a_broker(tmp_path: Path) -> None:
    """As it stands in the README, but for what it installs; nothing listens on port 1."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "session.py"
    script.write_text(code.replace("pip install numpy", "true").replace("127.0.0.1:9092", "127.0.0.1:1"))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
