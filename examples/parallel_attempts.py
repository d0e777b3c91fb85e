"""Make several attempts at one goal side by side; the best one counts, and the fleet learns from the difference.

    fleetlore up --data ./lore        # in another terminal
    python examples/parallel_attempts.py ./lore

Three attempts at a question over a small database, as a model at some temperature would make them: each guesses another
query. Without a folder the broker of FLEETLORE_BROKER is used; with none of them running the example runs all the same.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys

from fleetlore import Fleet, Session

GUESSES = iter(
    (
        "SELECT count(*) FROM car",
        "SELECT count(*) FROM cars WHERE year = 1970",
        "SELECT count(*) FROM cars WHERE year > 1970",
    )
)


async def attempt(session: Session) -> int | None:
    """Your agent: works in the session that it is given and says how it ended."""
    query = {"query": next(GUESSES)}
    advice = session.advise("sql", query)  # what the fleet knows of such calls; data for the model's context
    if advice.text:
        print(advice.text)
    async with session.action("sql", query) as action:
        try:
            action.result = answer = database().execute(query["query"]).fetchone()[0]
        except sqlite3.Error as error:
            action.fail(type(error).__name__, str(error))
            session.fail()
            return None
    session.succeed(reward=float(answer == 2))  # what the environment says of it
    return int(answer)


def database() -> sqlite3.Connection:
    """The world."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE cars (name TEXT, year INTEGER)")
    connection.executemany("INSERT INTO cars VALUES (?, ?)", [("a", 1969), ("b", 1970), ("c", 1970), ("d", 1972)])
    return connection


async def main() -> None:
    async with Fleet("analyst", data=sys.argv[1] if len(sys.argv) > 1 else None) as fleet:
        attempts = await fleet.parallel("How many cars were made in 1970?", attempt, k=3, task="cars")
    for each in attempts.all:
        print(
            f"attempt {each.number}: {each.outcome}, reward {each.reward}, {each.errors} errors, answer {each.result}"
        )
    print(f"best: attempt {attempts.best.number}, answer {attempts.best.result}")


asyncio.run(main())
