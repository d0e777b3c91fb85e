"""Pages follow the code: generated tables, links, and the names of commands and targets."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.rows import for_each

ROOT = Path(__file__).parents[2]
reference = SimpleNamespace(**runpy.run_path(str(ROOT / "deploy" / "reference.py")))
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


@for_each("page", *reference.PAGES)
def test_reference_pages_are_up_to_date(page: str) -> None:
    assert (reference.FOLDER / page).read_text() == reference.render(page), "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_pages_name_exist() -> None:
    """But for the notebooks, which speak of the files of their day."""
    for page in PAGES:
        if page.parent.name != "research":
            named = re.findall(r"`((?:[a-z_]+/)+[\w.-]+\.(?:py|md|yml|toml))`", page.read_text())
            missing = [each for each in named if not (ROOT / each).exists()]
            assert missing == [], page.name


_INSTALL = re.compile(r"""pip install (?!-)["'`]*fleetlore[\w-]*(?:\[[\w{},-]+\])?["'`]*""")


def test_every_command_that_installs_the_packages_says_from_where() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = []
    for name in listed.split("\n"):
        if not name.endswith((".py", ".md", ".toml", ".ts", ".yaml", ".yml")) or name.startswith("tests/"):
            continue
        for line in (ROOT / name).read_text().split("\n"):
            found = _INSTALL.search(line)
            if found and "from your index" not in line and "--index-url" not in line and "--find-links" not in line:
                missing.append(f"{name}: {line.strip()}")
    assert missing == []


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert 'class="mermaid"' in (tmp_path / "index.html").read_text(), "the diagram is drawn in the browser"


def test_no_page_says_that_a_release_was_published() -> None:
    texts = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    said = [
        f"{each.relative_to(ROOT)}: {line}"
        for each in texts
        for line in each.read_text().split("\n")
        if re.search(r"is released|was released|pypi\.org/project/fleetlore|available on (PyPI|npm)", line)
    ]
    assert said == []
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text()
