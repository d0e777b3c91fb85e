from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetlore.cli.app import build_app
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing.sessions import memory_item

RUNNER = CliRunner()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    index = LoreIndex()
    made: dict[str, Any] = {"kind": "place", "last_seen": 1_700_000_000.0}
    for id, title, content, place, agents in (
        ("1", "makers", "Works in calls of sql; shown by sql(SHOW TABLES)", "shop", 2),
        ("2", "cars_data", "Works in calls of sql", "shop", 5),
        ("3", "cars", "Rejected: Table <text> doesn't exist", "shop", 9),
        ("4", "--fast", "Works in calls of build", "ci\x1b[2J", 1),
    ):
        fields = {**made, "title": title, "content": content, "place": place, "agents": agents, "support": agents}
        index.put_item(memory_item(id, **fields), 0.0)
    index.put_item(memory_item("5", kind="recovery", title="no place"), 0.0)

    async def snapshot(*where: Any, **how: Any) -> LoreIndex:
        return index

    monkeypatch.setattr(LoreReplica, "snapshot", snapshot)
    return lambda *arguments: RUNNER.invoke(build_app(), ["places", "--broker", "localhost:1", *arguments])


def test_places_are_listed_with_how_much_is_known_of_each(run: Any) -> None:
    document = json.loads(run("--json").stdout)
    assert [(row["known"], row["rejected"]) for row in document["places"]] == [(1, 0), (2, 1)]
    assert "shop" in run().stdout and "\x1b" not in run().stdout


def test_one_place_shows_names_with_their_evidence_what_holds_first(run: Any) -> None:
    document = json.loads(run("shop", "--json").stdout)
    assert [(fact["name"], fact["holds"], fact["agents"]) for fact in document["facts"]] == [
        ("cars_data", True, 5),
        ("makers", True, 2),
        ("cars", False, 9),
    ]
    shown = run("shop", "--limit", "1").stdout
    assert "cars_data" in shown and "makers" not in shown and "1 of 3" in shown


def test_a_place_that_nobody_stated_is_refused(run: Any) -> None:
    done = run("nowhere")
    assert done.exit_code == 2 and "nothing is known of the place 'nowhere'" in done.stderr
