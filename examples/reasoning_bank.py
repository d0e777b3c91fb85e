"""Run ReasoningBank's loop with a fleet: retrieve before acting, act, cite what was used, let the environment judge;
the stream distils.

    fleetlore up --data ./lore        # in another terminal
    python examples/reasoning_bank.py ./lore

Run it twice: the first time the agent runs into the error and finds its way; by the second time the fleet has distilled
that, and the agent is told before it acts. `think` stands in for a model: give yours the same text.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys

from fleetlore import Advice, Fleet

GOAL = "How many cars were made in 1970?"


def think(memory: str, error: str) -> tuple[str, str]:
    """What the model says, and the query it wants. It cites an item as the text asks it to."""
    known = re.search(r"\[#(\w+)\][^\[]*cars_data", memory)
    if known:
        return f"As [#{known[1]}] says, the table is cars_data.", "SELECT count(*) FROM cars_data WHERE year = 1970"
    if error:
        return "The error says that the name is wrong.", "SELECT count(*) FROM cars_data WHERE year = 1970"
    return "I guess the name of the table.", "SELECT count(*) FROM cars WHERE year = 1970"


async def main() -> None:
    async with Fleet("analyst", data=sys.argv[1] if len(sys.argv) > 1 else None) as fleet:
        async with fleet.session(GOAL, task="cars") as session:
            advice: Advice = session.advise()  # 1. retrieve: of the task, before the first action
            query, error = "SELECT count(*) FROM cars WHERE year = 1970", ""
            for _ in range(3):
                advice_on_call = session.advise("sql", {"query": query})  # and of the call that is planned
                said, query = think(advice.text + advice_on_call.text, error)  # 2. inject, as data
                print(said)
                session.message("assistant", said)  # 3. what it cites is credited with what comes of it
                async with session.action("sql", {"query": query}) as action:  # 4. act
                    try:
                        action.result = answer = database().execute(query).fetchone()[0]
                        session.succeed(
                            reward=float(answer == 2)
                        )  # 5. judged by the environment; the stream distils the rest
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
