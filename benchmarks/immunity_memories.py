"""Define the memories that the fleet of `benchmarks.immunity_load` is measured with.

* `fleet`: an event goes to the broker; pipeline, Milvus and lore topics follow. Before a call an agent looks at the
  replica of its process.
* `journal`: an event is a row of a SQLite file in WAL mode that all processes share, committed every 25 ms. Before a
  call an agent looks at the failures that its process has read; a process reads new rows every `poll` seconds.

All agents of a process share one emitter and one replica, or one connection and one poller. The journal does not
redact, judge, distil or count, and ends at the machine's edge.

`python -m benchmarks.immunity_memories PLAN` runs one process of agents; PLAN is JSON. It prints "ready", reads the
start time from its standard input, and works.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import orjson

from benchmarks.immunity_load import Call, Host, Plan
from fleetlore.agent.fleet import Fleet, Session
from fleetlore.fingerprint.fingerprint import call_id

JOURNAL_LINGER_SECONDS = 0.025
FETCH_WAIT_MS = 50
GOAL = "keep the builds of this branch green and say what is wrong with those that are not"
FLUSH_SECONDS = 60.0


class FleetMemory:
    """fleetlore: `where` is the broker."""

    def __init__(self, where: str) -> None:
        # The value that an agent gets from the folder of the embedded stack.
        self._host = Fleet("host", broker=where, max_buffered_events=200_000, fetch_wait_ms=FETCH_WAIT_MS)
        self._members: dict[str, Fleet] = {}

    async def start(self) -> None:
        await self._host.start()
        await self._host.ready(10.0)

    @asynccontextmanager
    async def session(self, agent: str, number: int) -> AsyncIterator[FleetWorker]:
        member = self._members.get(agent)
        if member is None:
            # Agents of one process share its connections.
            member = self._members[agent] = Fleet(agent, broker=self._host.settings.broker)
            member.emitter, member.replica = self._host.emitter, self._host.replica
        async with member.session(GOAL, task="builds", session_id=f"{agent}/{number}") as session:
            yield FleetWorker(session)
            session.succeed()

    async def stop(self) -> tuple[int, int]:
        """Deliver what is left. Returns how many events arrived and how many were lost."""
        await self._host.flush(FLUSH_SECONDS)
        await self._host.close()
        return self._host.sent, self._host.dropped


class FleetWorker:
    def __init__(self, session: Session) -> None:
        self._session = session

    def knows(self, call: Call) -> bool:
        """Ask before a call: does the memory hold the failure that this call meets?"""
        advice = self._session.advise(call.tool, call.arguments, unseen=False)
        return bool(call.error) and call.failure.exact in advice.ids

    async def perform(self, call: Call) -> None:
        async with self._session.action(call.tool, call.arguments) as action:
            if call.error:
                action.fail(call.error_type, call.error)
            else:
                action.result = call.result


class JournalMemory:
    """A shared SQLite file with a write-ahead log: `where` is its path."""

    def __init__(self, where: Path, poll_seconds: float) -> None:
        self.failures: dict[str, set[str]] = {}  # by kind of call
        self.rows: list[tuple[str, str, str | None, str | None, bytes]] = []
        self._poll_seconds = poll_seconds
        self._file = sqlite3.connect(where, timeout=30.0, isolation_level=None)
        self._written = 0
        self._read = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS journal "
            "(id INTEGER PRIMARY KEY, agent TEXT, session TEXT, call TEXT, error TEXT, event BLOB)"
        )
        self._tasks = [asyncio.create_task(self._write_often()), asyncio.create_task(self._poll())]

    @asynccontextmanager
    async def session(self, agent: str, number: int) -> AsyncIterator[JournalWorker]:
        session = f"{agent}/{number}"
        self.rows.append((agent, session, None, None, orjson.dumps({"kind": "session.started", "goal": GOAL})))
        yield JournalWorker(self, agent, session)
        self.rows.append((agent, session, None, None, orjson.dumps({"kind": "session.ended", "outcome": "success"})))

    async def stop(self) -> tuple[int, int]:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._write()
        self._file.close()
        return self._written, 0

    async def _write_often(self) -> None:
        while True:
            await asyncio.sleep(JOURNAL_LINGER_SECONDS)
            self._write()

    def _write(self) -> None:
        rows, self.rows = self.rows, []
        if rows:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany(
                "INSERT INTO journal (agent, session, call, error, event) VALUES (?, ?, ?, ?, ?)", rows
            )
            self._file.execute("COMMIT")
            self._written += len(rows)

    async def _poll(self) -> None:
        while True:
            (last,) = self._file.execute("SELECT max(id) FROM journal").fetchone()
            if last is not None:
                found = self._file.execute(
                    "SELECT call, error FROM journal WHERE id > ? AND id <= ? AND error IS NOT NULL", (self._read, last)
                )
                for call, error in found:
                    self.failures.setdefault(call, set()).add(error)
                self._read = last
            await asyncio.sleep(self._poll_seconds)


class JournalWorker:
    def __init__(self, memory: JournalMemory, agent: str, session: str) -> None:
        self._memory = memory
        self._agent, self._session = agent, session

    def knows(self, call: Call) -> bool:
        return call.error in self._memory.failures.get(call_id(call.tool, call.arguments), ())

    async def perform(self, call: Call) -> None:
        kind = call_id(call.tool, call.arguments)
        ended = orjson.dumps(
            {
                "kind": "outcome",
                "tool": call.tool,
                "arguments": call.arguments,
                "result": call.result,
                "error": call.error,
            }
        )
        self._memory.rows.append((self._agent, self._session, kind, call.error or None, ended))


Worker = FleetWorker | JournalWorker
Memory = FleetMemory | JournalMemory


def open_memory(plan: Plan) -> Memory:
    name, _, option = plan.memory.partition(" ")
    if name == "fleet":
        return FleetMemory(plan.where)
    return JournalMemory(Path(plan.where), float(option))


async def main(plan: Plan) -> None:
    memory = open_memory(plan)
    await memory.start()
    host = Host(plan, memory)
    gc.freeze()
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    await host.work(start)
    print(msgspec.json.encode(host.result).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
