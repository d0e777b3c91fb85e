"""Define the memories that the fleet of `benchmarks.immunity_load` is measured with.

| name | an event | before a call | | --- | --- | --- | | `fleet` | goes to the broker; pipeline, Milvus and lore topics
follow | a look at the process' replica of the lore | | `journal` | a row of a SQLite file in WAL mode that all
processes share, committed every 25 ms | a look at the failures that the process has read; it reads the new rows every
`poll` seconds | | `mem0` | a failed call is added as a memory (`infer=False`: there is no LLM here); other events are
not | a search for the three nearest memories |

All agents of a process share one emitter and one replica, or one connection and one poller, or one mem0: what a host of
many agents would do. The journal redacts, judges, distils and counts nothing, and ends at the machine's edge. mem0 runs
with its local Qdrant in memory, which one process at a time can open, and with fleetlore's static encoder as its
embedder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from benchmarks.immunity_load import Call, Memory, Plan
from fleetlore.agent.fleet import Fleet, Session
from fleetlore.fingerprint.fingerprint import call_id

JOURNAL_LINGER_SECONDS = 0.025
FETCH_WAIT_MS = 50
GOAL = "keep the builds of this branch green and say what is wrong with those that are not"
FLUSH_SECONDS = 60.0


def open_memory(plan: Plan) -> Memory:
    name, _, option = plan.memory.partition(" ")
    if name == "fleet":
        return FleetMemory(plan.where, plan.run)
    if name == "journal":
        return JournalMemory(Path(plan.where), float(option))
    return Mem0Memory()


class FleetMemory:
    """fleetlore: `where` is the broker."""

    def __init__(self, where: str, run: int) -> None:
        # As an agent has it that finds the embedded stack by its folder.
        self._host = Fleet("host", broker=where, max_buffered_events=200_000, fetch_wait_ms=FETCH_WAIT_MS)
        self._run = run
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
        async with member.session(GOAL, task="builds", session_id=f"{self._run}/{agent}/{number}") as session:
            yield FleetWorker(session)
            session.succeed()

    async def stop(self) -> tuple[int, int]:
        await self._host.flush(FLUSH_SECONDS)
        await self._host.close()
        return self._host.sent, self._host.dropped


class FleetWorker:
    def __init__(self, session: Session) -> None:
        self._session = session

    def knows(self, call: Call) -> bool:
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


class Mem0Memory:
    """mem0 with a local store; needs `mem0ai` of the extra `[bench]`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mem0-")
        self.events = 0
        # Read when the package is imported; it would else call home and write to the user's folder.
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["MEM0_DIR"] = self._folder.name
        from fleetlore.retrieval.encoder import StaticEncoder, shared_encoder

        store = {
            "path": f"{self._folder.name}/qdrant",
            "embedding_model_dims": StaticEncoder.dimensions,
            "on_disk": False,
        }
        self.mem0: Any = import_module("mem0").Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": f"{self._folder.name}/history.db",
                # Neither is asked anything: nothing is inferred, and the embedder is replaced below.
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "embedder": {"provider": "openai", "config": {"api_key": "none"}},
            }
        )
        self.mem0.embedding_model = Embedder(shared_encoder())

    async def start(self) -> None:
        return None

    @asynccontextmanager
    async def session(self, agent: str, number: int) -> AsyncIterator[Mem0Worker]:
        self.events += 1
        yield Mem0Worker(self, agent)
        self.events += 1

    async def stop(self) -> tuple[int, int]:
        with contextlib.suppress(Exception):  # it also closes what it never opened
            self.mem0.close()
        self._folder.cleanup()
        return self.events, 0


class Mem0Worker:
    def __init__(self, memory: Mem0Memory, agent: str) -> None:
        self._memory = memory
        self._agent = agent

    def knows(self, call: Call) -> bool:
        query = f"{call.tool} {orjson.dumps(call.arguments).decode()}"
        found = self._memory.mem0.search(query, filters={"user_id": "fleet"}, top_k=3)
        return bool(call.error) and any(call.error in each["memory"] for each in found["results"])

    async def perform(self, call: Call) -> None:
        self._memory.events += 2
        if call.error:
            text = f"{call.tool} {orjson.dumps(call.arguments).decode()} failed: {call.error_type}: {call.error}"
            self._memory.mem0.add(text, user_id="fleet", agent_id=self._agent, infer=False)


class Embedder:
    """fleetlore's static encoder behind mem0's interface."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [float(x) for x in self._encoder.encode([text])[0]]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]
