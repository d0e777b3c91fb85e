from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from fleetlore.cli.app import build_app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "docs/metrics.md", "docs/topics.md"])
def test_tables_are_up_to_date(tables: ModuleType, page: str) -> None:
    assert page in tables.PAGES
    assert (ROOT / page).read_text() == tables.render(page), "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_in_the_pages_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        text = page.read_text()
        named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^(?:\$ )?make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= targets, page.name


def test_commands_in_the_pages_exist() -> None:
    app = build_app()
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {group.name for group in app.registered_groups if group.name}
    known |= set(
        tomllib.loads((ROOT / "deploy/server/pyproject.toml").read_text())["project"]["entry-points"][
            "fleetlore.commands"
        ]
    )
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        named = set(re.findall(r"`(?:FORCE_COLOR=1 )?fleetlore ([a-z-]+)", page.read_text()))
        assert named <= known, page.name
