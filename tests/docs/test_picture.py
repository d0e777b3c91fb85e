from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def test_the_end_of_the_output_is_drawn(tmp_path: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(60)) + "\x1b[1mrepeat failures\x1b[0m 12 → 3\n"
    target = tmp_path / "demo.svg"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.docs.picture", target],
        cwd=ROOT,
        input=output,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ElementTree.parse(target)
    text = target.read_text().replace("&#160;", " ")
    assert "repeat failures" in text
    assert "line 59" in text
    assert "line 3<" not in text
