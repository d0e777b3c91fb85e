"""The pages build as a site without a warning: no dead link, no missing anchor, no page outside the navigation."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import for_each

ROOT = Path(__file__).parents[2]
MAX_README_LINES = 170  # the first screen holds what runs everything, and a table of its figure
MAX_EXPLANATION_LINES = 250
MAX_GLOSSARY_WORDS = 15
MAX_LINE = 120


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert 'class="mermaid"' in (tmp_path / "index.html").read_text(), "the diagram is drawn in the browser"


def test_the_pages_keep_their_size() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES
    for page in ROOT.glob("docs/explain/*.md"):
        assert len(page.read_text().splitlines()) <= MAX_EXPLANATION_LINES, page.name
    rows = [line for line in (ROOT / "docs/explain/glossary.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) - 2 <= MAX_GLOSSARY_WORDS


@for_each("folder", [".", "docs/guide", "docs/guide/join", "docs/explain"])
def test_lines_are_not_longer_than_the_code_s(folder: str) -> None:
    for page in (ROOT / folder).glob("*.md"):
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        long = [
            line
            for line in prose.splitlines()
            if len(line) > MAX_LINE and not line.startswith("|") and "](" not in line
        ]
        assert long == [], page.name
