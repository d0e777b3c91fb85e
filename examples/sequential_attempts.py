"""Make attempts one after another, without asyncio: each is told how the one before it went, until one succeeds.

    fleetlore up --data ./lore        # in another terminal
    python examples/sequential_attempts.py ./lore

Without a folder the broker of FLEETLORE_BROKER is used; with none of them running the example runs all the same.
"""

from __future__ import annotations

import sqlite3
import sys

from fleetlore import BlockingFleet, BlockingSession


def attempt(session: BlockingSession) -> int | None:
    """Your agent. A model would read `session.earlier`; this one looks for two words in it."""
    knows_year = "no such column" in session.earlier
    table = "cars" if knows_year or "no such table" in session.earlier else "car"
    year = "year" if knows_year else "made"
    query = {"query": f"SELECT count(*) FROM {table} WHERE {year} = 1970"}
    print(f"trying {query['query']}")
    with session.action("sql", query) as action:
        try:
            action.result = answer = database().execute(query["query"]).fetchone()[0]
        except sqlite3.Error as error:
            action.fail(type(error).__name__, str(error))
            session.note("the names were a guess: look at the error before the next one")
            session.fail()
            return None
    session.succeed()
    return int(answer)


def database() -> sqlite3.Connection:
    """The world."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE cars (name TEXT, year INTEGER)")
    connection.executemany("INSERT INTO cars VALUES (?, ?)", [("a", 1969), ("b", 1970), ("c", 1970), ("d", 1972)])
    return connection


with BlockingFleet("analyst", data=sys.argv[1] if len(sys.argv) > 1 else None) as fleet:
    attempts = fleet.sequential("How many cars were made in 1970?", attempt, k=4, task="cars")
print(f"attempt {attempts.best.number}: {attempts.best.outcome}, answer {attempts.best.result}")
