from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale", DOCS / "scale.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_follow_from_the_inputs(scale: ModuleType) -> None:
    page = (DOCS / "scale.md").read_text()
    assert page == scale.render(page), "run `python docs/scale.py`"


def test_every_table_is_shown(scale: ModuleType) -> None:
    page = (DOCS / "scale.md").read_text()
    assert all(f"<!-- table: {name} -->" in page for name in scale.TABLES)


def test_other_inputs_give_other_tables(scale: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "scale.md").read_text()
    monkeypatch.setitem(scale.MEASURED, "cpu_worker", (77, "µs per event", "immunity"))
    assert "| workers, everything | 77 | 770 | 1,540 |" in scale.render(page)
