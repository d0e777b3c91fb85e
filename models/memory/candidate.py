"""What one session contributes to one memory item."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import msgspec

from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.wire.lore import ItemKind
from fleetlore.wire.trajectory import Trajectory, encode

Side = Literal["success", "failure", "withdrawn"]

# What is unsure never becomes a lesson or a strategy: probabilities of success between these bounds teach neither.
FAILURE_BELOW = 0.2
SUCCESS_ABOVE = 0.8

# No id of a pattern begins like this, for they are hexadecimal: an agent says of both in one list which it was given.
ITEM_PREFIX = "item"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="candidate"):
    """One session's contribution to the memory item `item_id`; contributions of many sessions merge into an `ItemState`.

    Attributes:
        item_id: deterministic, `ITEM_PREFIX` and 28 hex digits: sessions that learned the same thing agree on it without
            talking.
        side: which side of the contrast this session is on. A strategy has both. A recovery is backed by successes and a lesson
            by failures; the other side contradicts them: the change was made and the same error came again, or a session got
            past the error and succeeded. `withdrawn` says that the session, judged again, teaches this no longer: of no side.
        session: of which it is the contribution (of a long session: which part).
        revision: (events it was made from, time of the correction or 0): the greatest counts, of several from one session.
        seen: event time in seconds since the Unix epoch.
        calls: of a strategy: the session's calls in order, one text each, for the contrast with the other side.
        way: of a strategy: hash of how the session ended (its last call, or what that gave); 0 where nothing is known.
        aspect: of a strategy that only attempts at one task that were started together have: what `calls` says of them
            (`models.memory.contrast`); empty for the way.
        instead: of what contradicts an item: id of the item that the session taught instead, if it did.
        rank: lower is the better example; compared as a tuple, ties broken by session.
        title, description, content, when, tool, pattern, cause, call, task, remedy, version: as in `fleetlore.wire.lore.MemoryItem`; empty
            where it contradicts.
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
    title: str = ""
    description: str = ""
    content: str = ""
    when: str = ""
    tool: str = ""
    pattern: str | None = None
    cause: str | None = None
    call: str | None = None
    task: str = ""
    remedy: dict[str, Any] | None = None
    calls: tuple[str, ...] = ()
    way: int = 0
    aspect: str = ""
    instead: str = ""
    version: str = ""

    def to_json(self) -> bytes:
        return encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Candidate:
        """Raises msgspec.DecodeError (a ValueError) for what is no candidate."""
        return msgspec.json.decode(value, type=cls)


class Origin(TypedDict):
    """Those fields of a `Candidate` that say where it comes from."""

    tenant: str
    session: str
    agent: str
    seen: float
    revision: tuple[int, float]


def origin(trajectory: Trajectory) -> Origin:
    """Of the session, as it is now."""
    return Origin(
        tenant=trajectory.tenant,
        session=trajectory.id,
        agent=trajectory.agent,
        seen=trajectory.ended,
        revision=trajectory.revision,
    )


def item_id(version: str, tenant: str, kind: str, *key: str) -> str:
    """Id of a memory item. A new `version` of its distiller gives new ids, so items of two distillers never mix."""
    return ITEM_PREFIX + pattern_id("item", version, tenant, kind, *key)[:28]


def is_item(id: str) -> bool:
    """Whether an id is that of an item that learns: no pattern and no fact."""
    return id.startswith(ITEM_PREFIX)
