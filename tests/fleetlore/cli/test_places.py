from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetlore.adapters import listing
from fleetlore.calls.document import Place
from fleetlore.cli.app import build_app
from tests.fleetlore.calls.test_model import document

RUNNER = CliRunner()
SHOP = Place(7, {"makers": (2, 0), "cars_data": (5, 1), "cars": (0, 9)})
WEIGHTS = document(places={"shop": SHOP, "ci\x1b[2J": Place(1, {"--fast": (1, 0)})}).to_bytes()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, weights: bytes | None = WEIGHTS) -> Any:
    async def read_weights(*where: Any, **how: Any) -> bytes | None:
        return weights

    monkeypatch.setattr(listing, "read_weights", read_weights)
    return RUNNER.invoke(build_app(), ["places", "--broker", "localhost:1", *arguments])


def test_places_are_listed_with_how_much_is_known_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, "--json").stdout)
    assert [(row["sessions"], row["names"]) for row in found["places"]] == [(1, 1), (7, 3)]
    shown = run(monkeypatch).stdout
    assert "shop" in shown and "\x1b" not in shown


def test_one_place_shows_its_names_those_that_work_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, "shop", "--json").stdout)
    assert [tuple(row.values()) for row in found["names"]] == [("cars_data", 5, 1), ("makers", 2, 0), ("cars", 0, 9)]
    shown = run(monkeypatch, "shop", "--limit", "1").stdout
    assert "cars_data" in shown and "makers" not in shown and "1 of 3" in shown


def test_a_place_that_nobody_stated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, "nowhere")
    assert done.exit_code == 2 and "nothing is known of the place 'nowhere'" in done.stderr
    assert "no version that knows a place yet" in run(monkeypatch, weights=None).stdout
