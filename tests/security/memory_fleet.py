"""A fleet in memory, and everything that the model of one agent can read from the others."""

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

from mcp.server.mcpserver import MCPServer

from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.calls.model import CallModel
from fleetlore.join.mcp.server import lore_server
from fleetlore.recall.search import LoreSearch
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Trajectory
from models.calls.training import train
from streams.offline.memory_pipeline import MemoryPipeline


class Made(NamedTuple):
    """A call that was made, and its result or the text of its error."""

    tool: str
    arguments: object = None
    result: object = "ok"
    error: str | None = None


class MemoryFleet:
    """Sessions run through the pipeline's own stages; what they teach is read by the doors of a session."""

    def __init__(self, quorum: int = 2) -> None:
        self.pipeline = MemoryPipeline()
        self._quorum = quorum
        self.trajectories: list[Trajectory] = []
        self._number = count()

    async def session(
        self, agent: str, *calls: Made, goal: str, task: str = "", ok: bool = True, place: str = "", id: str = ""
    ) -> None:
        """One session of an agent, from its start to its end."""
        events: list[Event] = []
        with self._open(agent, goal, task, place, id, events) as session:
            record(session, calls)
            session.succeed() if ok else session.fail()
        self.trajectories += await self.pipeline.take(events)

    def learn(self) -> bytes:
        """Train the call model on all sessions; every agent has it from then on. Returns its document, inflated."""
        weights = train(self.trajectories, quorum=self._quorum).weights
        self.pipeline.call_model = CallModel.from_bytes(weights)
        return zlib.decompress(weights)

    async def read(
        self,
        *calls: Made,
        goal: str,
        task: str = "",
        place: str = "",
        tools: Sequence[str] = (),
        then: Made | None = None,
    ) -> dict[str, str]:
        """Return the texts that the model of an agent without own lore can read, by door.

        Args:
            calls: what its session did before.
            then: the call that it is about to make; none for the first of `calls`.
        """
        asked = then if then is not None else calls[0] if calls else None
        doors: dict[str, str] = {}
        with self._open("asker", goal, task, place) as session:
            doors["at the start"] = session.advise().text
            record(session, calls)
            doors["after the last call"] = session.advise().text
            if asked is not None:
                doors["before the next call"] = session.advise(asked.tool, asked.arguments).text
        used = [*tools, *([] if asked is None else [asked.tool])]
        with self._open("asker", goal, task, place) as session:
            doors["brief"] = session.brief(used).text
            if asked is not None:
                doors["before the first call"] = session.advise(asked.tool, asked.arguments).text
        with self._open("asker", goal, task, place) as session, patch.object(LoreSearch, "items", self._all_items):
            doors["recall"] = (await session.recall(goal, 100)).text
            doors["MCP search"] = await self._over_mcp(session, goal)
        return doors

    def published(self) -> str:
        """The bodies of all items and patterns, as the compacted topics carry them."""
        store = self.pipeline.store
        return b"\n".join([*store.bodies("items"), *store.bodies("patterns")]).decode()

    def _open(
        self, agent: str, goal: str, task: str, place: str, id: str = "", events: list[Event] | None = None
    ) -> Session:
        id = id or f"{agent}-{next(self._number)}"
        session = self.pipeline.session(agent, goal, task, id, [] if events is None else events, place=place)
        session.fleet.settings = replace(
            session.fleet.settings, quorum=self._quorum, holdout_share=0.0
        )  # no attack fails by chance
        return session

    async def _all_items(self, *args: Any, **options: Any) -> list[tuple[float, MemoryItem]]:
        """A search that finds everything: what is found may be told."""
        return [(1.0, item) for item in self.pipeline.index.items.values()]

    async def _over_mcp(self, session: Session, goal: str) -> str:
        found = ""
        _ASKED.fleet = session.fleet
        for text in (goal, *(item.title for item in self.pipeline.index.items.values())):
            result = await _mcp_server().call_tool("search", {"text": text, "most": 100})
            found += result.content[0].text
        return found


class _AskedFleet:
    """Stands for the fleet that a search over MCP is about."""

    fleet: Fleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)


_ASKED: Any = _AskedFleet()
_OPEN = ExitStack()


@cache
def _mcp_server() -> MCPServer[Any]:
    """One server for all fleets: pydantic takes 15 ms of a core to describe its tools."""
    return _OPEN.enter_context(lore_server(_ASKED))


def record(session: Session, calls: Sequence[Made]) -> None:
    for call in calls:
        session.record(call.tool, call.arguments, result=call.result, error_text=call.error)


def leaks(doors: dict[str, str], *marks: str) -> list[str]:
    """Each line of a door that holds one of the marks, in whatever case: what a failed test shows."""
    return [
        f"{door}: {line.strip()[:240]}"
        for door, text in doors.items()
        for line in text.splitlines()
        if any(mark.lower() in line.lower() for mark in marks)
    ]
