"""What one session contributes to one memory item."""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import Any, Literal

import orjson

from fleetlore.lore import ItemKind

Side = Literal["success", "failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One session's contribution to the memory item `item_id`; contributions of many sessions merge into an `ItemState`.

    Attributes:
        item_id: deterministic, 32 hex digits: sessions that learned the same thing agree on it without talking.
        side: which side of the contrast this session is on. A recovery is a success, a lesson a failure, a strategy has both; a
            success on a lesson's side takes back what the session contributed before somebody corrected its verdict.
        session: of which it is the contribution (of a long session: which part).
        revision: (events it was made from, time of the correction or 0): the greatest counts, of several from one session.
        seen: event time in seconds since the Unix epoch.
        calls: of a strategy: the session's calls in order, one text each, for the contrast with the other side.
        rank: lower is the better example; compared as a tuple, ties broken by session.
        title, description, content, when, tool, pattern, call, task, remedy, version: as in `fleetlore.lore.MemoryItem`.
    """

    item_id: str
    tenant: str
    kind: ItemKind
    side: Side
    session: str
    agent: str
    seen: float
    revision: tuple[int, float]
    rank: tuple[int, ...]
    title: str
    description: str
    content: str
    when: str
    tool: str = ""
    pattern: str | None = None
    call: str | None = None
    task: str = ""
    remedy: dict[str, Any] | None = None
    calls: tuple[str, ...] = ()
    version: str = ""

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes) -> Candidate:
        return cls.from_dict(orjson.loads(value))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Candidate:
        # Names out of JSON are no interned strings, and a call with twenty such names compares each with all parameters.
        named = {intern(name): value for name, value in fields.items()}
        events, corrected = fields["revision"]
        named["revision"] = events, corrected
        named["rank"] = tuple(fields["rank"])
        named["calls"] = tuple(fields["calls"])
        return cls(**named)
