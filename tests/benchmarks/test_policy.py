"""That a newcomer reads advice, that calls are executed, and that arms are compared."""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluate.fleet import Fleet
from tests.logs import write_logs


@pytest.fixture(scope="module")
def policy_calls() -> Any:
    """It loads torch, for seconds, which who only collects tests need not do."""
    return importlib.import_module("benchmarks.policy_calls")


def write_log(folder: Path, tasks: Iterable[int]) -> None:
    """Four agents at each task, whose first query names no table."""
    missing = "Table 'shop.items' doesn't exist"
    calls = [("sql", "SELECT a FROM items", missing), ("sql", "SELECT a FROM things", None)]
    write_logs(folder, [(f"p{n}", f"sql/{task}", 1, calls, {"goal": "List"}) for n, task in product(range(4), tasks)])


def test_a_newcomer_reads_the_advice_of_older_sessions(policy_calls: Any, tmp_path: Path) -> None:
    write_log(tmp_path, tasks=range(5))
    log, fleet = policy_calls.log_of(tmp_path), Fleet(lore=True)
    asyncio.run(fleet.learn(log.logged))
    assert "things" in policy_calls.advice(fleet, log.trajectories[0])


# Answers as the client of a database does: `--batch --skip-column-names --execute QUERY DATABASE`.
CLIENT = """
import sqlite3, sys
database = sqlite3.connect(":memory:")
database.executescript("CREATE TABLE things (a); INSERT INTO things VALUES (1), (2)")
try:
    print(*(row[0] for row in database.execute(sys.argv[4].split("READ ONLY; ")[1])), sep="\\n")
except sqlite3.Error as error:
    sys.exit(str(error))
"""


@pytest.fixture
def databases(policy_calls: Any, tmp_path: Path) -> Any:
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "questions.json").write_text(json.dumps([{"query": "List", "gold": "SELECT a FROM things"}]))
    return policy_calls.Databases(f"{sys.executable} {tmp_path / 'client.py'}", tmp_path / "questions.json")


def test_a_call_is_executed_and_compared_with_the_gold_query(policy_calls: Any, databases: Any, tmp_path: Path) -> None:
    write_log(tmp_path, tasks=range(3))
    met = policy_calls.log_of(tmp_path).trajectories
    states = databases.states(met, {"sql/1"})
    assert {each.task for each in states} == {"sql/0", "sql/2"}

    def judged(call: str) -> list[bool]:
        row = databases.row("none", states[0], call)
        return [row[name] for name in ("works", "right", "same call", "look-up")]

    assert judged("select  a FROM items;") == [False, False, True, False]
    assert judged("execute[SELECT a FROM things ORDER BY a DESC]") == [True, True, False, False]
    assert judged("SELECT a FROM things WHERE a = 1") == [True, False, False, False]
    assert judged("DESC things")[3]


def test_arms_are_compared_by_task(policy_calls: Any) -> None:
    works = {"none": (0, 0), "weights": (1, 0), "text": (0, 1), "weights and text": (1, 1)}
    rows = [
        {"arm": arm, "task": task, "works": value, "right": 0, "same call": 0, "look-up": 0}
        for arm, values in works.items()
        for task, value in enumerate(values)
    ]
    found = policy_calls.figures([*rows[::2], *rows[1::2]])
    assert found["weights: works"]["mean"] == found["weights minus none: works"]["mean"] == 0.5
    assert found["weights and text minus none: works"] == {"mean": 1, "low": 1, "high": 1}
    assert found["weights and text minus text: works"]["low"] == 0
