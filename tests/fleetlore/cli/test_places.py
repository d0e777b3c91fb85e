"""`places`: what the call model knows of each."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetlore.adapters import listing
from fleetlore.calls.document import Place
from fleetlore.cli.app import build_app
from tests.fleetlore.calls.test_model import document

SHOP = Place(7, {"makers": (2, 0), "cars_data": (5, 1), "cars": (0, 9)})
PLACES = document(places={"shop": SHOP, "ci\x1b[2J": Place(1, {"--fast": (1, 0)})}).to_bytes()


def run(monkeypatch: pytest.MonkeyPatch, weights: bytes | None, *arguments: str) -> Any:
    async def read_weights(*where: Any, **how: Any) -> bytes | None:
        return weights

    monkeypatch.setattr(listing, "read_weights", read_weights)
    return CliRunner().invoke(build_app(), [*arguments, "--broker", "localhost:1"])


def test_a_version_that_cannot_be_read_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = run(monkeypatch, b"x", "places")
    assert broken.exit_code == 1 and broken.stderr.endswith("cannot be read: Input data was truncated\n")


def test_places_are_listed_with_how_much_is_known_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, PLACES, "places", "--json").stdout)
    assert [(row["sessions"], row["names"]) for row in found["places"]] == [(1, 1), (7, 3)]
    shown = run(monkeypatch, PLACES, "places").stdout
    assert "shop" in shown and "\x1b" not in shown


def test_one_place_shows_its_names_those_that_work_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, PLACES, "places", "shop", "--json").stdout)
    assert [tuple(row.values()) for row in found["names"]] == [("cars_data", 5, 1), ("makers", 2, 0), ("cars", 0, 9)]
    shown = run(monkeypatch, PLACES, "places", "shop", "--limit", "1").stdout
    assert "cars_data" in shown and "makers" not in shown and "1 of 3" in shown


def test_a_place_that_nobody_stated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, PLACES, "places", "nowhere")
    assert done.exit_code == 2 and "nothing is known of the place 'nowhere'" in done.stderr
    assert "no version that knows a place yet" in run(monkeypatch, None, "places").stdout
