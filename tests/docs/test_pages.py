"""Pages follow the code: generated tables, links, and the names of commands and targets."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import typer

from fleetlore.cli.app import build_app
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
reference = SimpleNamespace(**runpy.run_path(str(ROOT / "deploy" / "reference.py")))
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


@for_each("page", reference.PAGES)
def test_reference_pages_are_up_to_date(page: str) -> None:
    assert (reference.FOLDER / page).read_text() == reference.render(page), "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_targets_in_the_pages_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^(?:\$ )?make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= targets, page.name


def test_commands_in_the_pages_exist() -> None:
    known = set(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]
    for page in PAGES:
        named = set(re.findall(r"`(?:FORCE_COLOR=1 )?fleetlore ([a-z][a-z-]*)", page.read_text()))
        assert named <= known, page.name


def test_files_that_the_pages_name_exist() -> None:
    """But for the notebooks, which speak of the files of their day."""
    for page in PAGES:
        if page.parent.name != "research":
            named = re.findall(r"`((?:[a-z_]+/)+[\w.-]+\.(?:py|md|yml|toml))`", page.read_text())
            missing = [each for each in named if not (ROOT / each).exists()]
            assert missing == [], page.name
