from __future__ import annotations

import pytest

from benchmarks.docs import scale


def test_the_tables_follow_from_the_inputs() -> None:
    page = scale.PAGE.read_text()
    assert page == scale.render(page), "run `make docs`"


def test_every_table_is_shown() -> None:
    page = scale.PAGE.read_text()
    assert all(f"<!-- table: {name} -->" in page for name in scale.TABLES)


def test_other_inputs_give_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    page = scale.PAGE.read_text()
    monkeypatch.setitem(scale.MEASURED, "cpu_worker", (77, "µs per event", "immunity"))
    assert "| workers, everything | 77 | 770 | 1,540 |" in scale.render(page)
