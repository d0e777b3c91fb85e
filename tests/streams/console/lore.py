"""Lore to show, and a source that holds still."""

from typing import Any

from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.trajectory import Trajectory
from models.judge import SessionState
from streams.console.sources import Snapshot
from tests.build import memory_item

HOUR = 3600.0
NOW = 1_800_000_000.0
THIS_HOUR = int(NOW // HOUR)


class Still:
    """A source whose snapshot the test sets."""

    def __init__(self, snapshot: Snapshot, sessions: dict[str, SessionState] | None = None) -> None:
        self.now = snapshot
        self.sessions = sessions or {}

    def snapshot(self) -> Snapshot:
        return self.now

    async def sessions_named(self, id: str) -> list[tuple[Trajectory, SessionState]]:
        known = [(each.trajectory, each) for each in self.sessions.values() if each.trajectory is not None]
        return [each for each in known if id in (each[0].id, each[0].session)]

    async def sessions_of(self, agent: str) -> list[dict[str, Any]]:
        known = [each.trajectory for each in self.sessions.values() if each.trajectory is not None]
        return [
            {"key": each.id, "session": each.session, "task": each.task, "label": "failure"}
            for each in known
            if each.agent == agent
        ]


def snapshot(*entries: Pattern | MemoryItem, **fields: Any) -> Snapshot:
    index = LoreIndex()
    for each in entries:
        if isinstance(each, Pattern):
            index.put_pattern(each)
        else:
            index.put_item(each)
    return Snapshot("default", NOW, index, **fields)


def hours(*counts: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    """(hours ago, calls, failures), newest first."""
    return tuple((THIS_HOUR - ago, calls, failures) for ago, calls, failures in counts)


def tool(name: str, *counts: tuple[int, int, int]) -> Pattern:
    values: dict[str, Any] = {"id": f"tool-{name}", "tool": name, "calls": sum(each[1] for each in counts)}
    return Pattern(level="tool", tenant="default", failures=_failures(counts), hours=hours(*counts), **values)


def family(of: str, error: str, *counts: tuple[int, int, int], **fields: Any) -> Pattern:
    values: dict[str, Any] = {"first_seen": NOW - 9 * 86_400, "last_seen": NOW, "sessions": 9, "agents": 3}
    values |= {"id": f"{of}-{error}", "tool": of, "error_class": error, "failures": _failures(counts)}
    return Pattern(level="family", tenant="default", hours=hours(*counts), **(values | fields))


def form(of: Pattern, template: str, **fields: Any) -> Pattern:
    values: dict[str, Any] = {"failures": 1, "last_seen": NOW, "id": f"{of.id}-{template}", "template": template}
    values |= {"tool": of.tool, "error_class": of.error_class, "parent": of.id}
    return Pattern(level="class", tenant="default", **(values | fields))


def item(id: str, **fields: Any) -> MemoryItem:
    seen: dict[str, Any] = {"support": 3, "agents": 2, "last_seen": NOW, "first_seen": NOW}
    texts = {"title": f"title of {id}", "content": f"content of {id}", "description": "", "when": ""}
    return memory_item(id, **(seen | texts | fields))


def _failures(counts: tuple[tuple[int, int, int], ...]) -> int:
    return sum(each[2] for each in counts)
