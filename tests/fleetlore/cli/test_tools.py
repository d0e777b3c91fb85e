from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetlore.adapters import listing
from fleetlore.calls.document import LookUp, Need
from fleetlore.cli.app import build_app
from tests.fleetlore.calls.test_model import document

RUNNER = CliRunner()
NEED = Need("exchange", "order_id", "status", "pending", "not delivered", 8, 9, 4, ("delivered",))
SEEN = Need("exchange", "order_id", "status", "lost", "not delivered", 5, 5, 2, ())
FOUND = LookUp("find_by_email", "user not found", "find_by_name", "(name, zip)", 50, 60, 3)


def run(weights: bytes | None, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    async def read_weights(*where: Any, **how: Any) -> bytes | None:
        return weights

    monkeypatch.setattr(listing, "read_weights", read_weights)
    return RUNNER.invoke(build_app(), ["tools", "--broker", "localhost:1", *arguments])


def test_what_agents_are_told_of_tools_is_listed_the_best_backed_needs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = document(needs=(SEEN, NEED), look_ups=(FOUND,)).to_bytes()
    found = json.loads(run(weights, monkeypatch, "--json").stdout)["facts"]
    assert [(each["tool"], each["about"], each["agents"], each["sessions"]) for each in found] == [
        ("exchange", "need", 4, 8),
        ("exchange", "need", 2, 5),
        ("find_by_email", "look-up", 3, 50),
    ]
    assert "find_by_name(name, zip)" in found[2]["says"]
    one = run(weights, monkeypatch, "exchange", "--limit", "1").stdout
    assert "`pending`" in one and "lost" not in one and "1 of 2" in one
    refused = run(weights, monkeypatch, "none")
    assert refused.exit_code == 2 and "nothing is known of the tool 'none'" in refused.stderr


def test_before_the_first_version_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no version that says anything of tools yet" in run(None, monkeypatch).stdout


def test_a_version_that_cannot_be_read_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = run(b"x", monkeypatch)
    assert broken.exit_code == 1 and broken.stderr.endswith("cannot be read: Input data was truncated\n")
