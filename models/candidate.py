"""What one session contributes to one memory item."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fleetlore.lore import ItemKind
from fleetlore.trajectory import encode

Side = Literal["success", "failure"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
        return encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Candidate:
        """Raises msgspec.DecodeError (a ValueError) for what is no candidate."""
        return msgspec.json.decode(value, type=cls)
