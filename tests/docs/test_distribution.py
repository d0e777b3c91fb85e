"""Nobody has published the packages: no text sends a reader to an index that does not have them."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
