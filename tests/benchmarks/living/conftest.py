"""A world of two databases."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.living.sql.world import SqlWorld
from tests.benchmarks.living.scripted import PLACES


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    questions = []
    for place, table in zip(PLACES, ("plant", "vessel"), strict=True):
        with closing(sqlite3.connect(tmp_path / f"{place}.db")) as database:
            database.execute(f"CREATE TABLE {table} (label TEXT, height INTEGER)")
            database.executemany(f"INSERT INTO {table} VALUES (?, ?)", [("a", 1), ("b", 2), ("c", 3)])
            database.commit()
        questions += [
            {
                "id": f"{place}-{least}",
                "db": place,
                "question": f"Which {table}s are higher than {least}?",
                "gold": f"SELECT label FROM {table} WHERE height > {least}",
            }
            for least in range(-8, 8)
        ]
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    return SqlWorld(tmp_path)
