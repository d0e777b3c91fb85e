"""Run ReasoningBank's loop with a fleet: retrieve before acting, act, let the environment judge; the stream
distils.

    fleetlore up --data ./lore        # in another terminal
    python examples/reasoning_bank.py ./lore

Run it twice: the first time the agent runs into the error in both of its sessions and finds its way; by the second time
the fleet has distilled that, and the agent is told before it acts. What one session alone did may be its own luck: of
queries nothing is told before a second one backs it. `think` stands in for a model: give yours the same text.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys

from fleetlore import Advice, Fleet

# Years, and how many cars were made in them.
ANSWERS = {1970: 2, 1969: 1}


def think(year: int, memory: str, error: str) -> tuple[str, str]:
    """What the model says, and the query it wants."""
    if "Use `cars_data`" in memory:
        return "As others found, the table is cars_data.", f"SELECT count(*) FROM cars_data WHERE year = {year}"
    if error:
        return "The error says that the name is wrong.", f"SELECT count(*) FROM cars_data WHERE year = {year}"
    return "I guess the name of the table.", f"SELECT count(*) FROM cars WHERE year = {year}"


async def main() -> None:
    async with Fleet("analyst", data=sys.argv[1] if len(sys.argv) > 1 else None) as fleet:
        for year, answer in ANSWERS.items():
            await solve(fleet, year, answer)


async def solve(fleet: Fleet, year: int, answer: int) -> None:
    async with fleet.session(f"How many cars were made in {year}?", task="cars") as session:
        advice: Advice = session.advise()  # 1. retrieve: of the task, before the first action
        query, error = f"SELECT count(*) FROM cars WHERE year = {year}", ""
        for _ in range(3):
            advice_on_call = session.advise("sql", {"query": query})  # and of the call that is planned
            said, query = think(year, advice.text + advice_on_call.text, error)  # 2. inject, as data
            print(said)
            session.message("assistant", said)
            async with session.action("sql", {"query": query}) as action:  # 3. act
                try:
                    action.result = found = database().execute(query).fetchone()[0]
                    # 4. judged by the environment; the stream distils the rest
                    session.succeed(reward=float(found == answer))
                    break
                except sqlite3.Error as failure:
                    error = str(failure)
                    action.fail(type(failure).__name__, error)
    print(f"{session.outcome} after {session.calls} calls, {session.errors} failed")


def database() -> sqlite3.Connection:
    """The world."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE cars_data (name TEXT, year INTEGER)")
    connection.executemany("INSERT INTO cars_data VALUES (?, ?)", [("a", 1969), ("b", 1970), ("c", 1970), ("d", 1972)])
    return connection


asyncio.run(main())
