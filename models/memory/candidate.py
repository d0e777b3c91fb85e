"""Define what one session contributes to a memory item: what it learned, or that it was shown the item."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypedDict

import msgspec

from fleetlore.fingerprint.fingerprint import arguments_text, pattern_id
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.lore import ItemKind
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory, encode

__all__ = ["FAILURE_BELOW", "SEVERAL_GOALS", "SUCCESS_ABOVE", "Candidate", "Shown", "item_id", "origin", "shown_items"]

Side = Literal["success", "failure", "withdrawn"]

# Probabilities of success between these bounds teach no strategy.
FAILURE_BELOW = 0.2
SUCCESS_ABOVE = 0.8

# What may hold for one task only is told once sessions with so many goals back it.
SEVERAL_GOALS = 2

# Pattern ids are hexadecimal, so none begins like this: an agent reports both in one list.
_ITEM_PREFIX = "item"


_hash = lru_cache(maxsize=4096)(stable_hash)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="candidate"):
    """One session's contribution to the memory item `item_id`; those of many sessions merge into an `ItemState`.

    Attributes:
        item_id: `_ITEM_PREFIX` and 28 hex digits, made of what was learned, so that sessions agree on it independently.
        side: successes back an item, and failures contradict a recovery. `withdrawn`: the session, judged again, no
            longer teaches this.
        session: id of the trajectory that contributes.
        revision: `Trajectory.revision`; the greatest of a session counts.
        seen: event time in seconds since the Unix epoch.
        goal: hash of the session's goal; of its task, or of itself, where it has none.
        delayed: whether the session got there only after another failure or look-up, and not by its next call.
        least_goals: of how many goals the sessions must be that back the item before it is one.
        calls: of a strategy: the session's calls in order, one text each; its `title` is then the session's goal.
        title, description, content, when, tool, pattern, cause, task, remedy, was, now, plain, named, danger, version:
            as in `fleetlore.wire.lore.MemoryItem`; empty in a contradiction.
    """

    item_id: str
    tenant: str
    kind: ItemKind
    side: Side
    session: str
    agent: str
    seen: float
    revision: tuple[int, float]
    goal: int = 0
    delayed: bool = False
    least_goals: int = 1
    title: str = ""
    description: str = ""
    content: str = ""
    when: str = ""
    tool: str = ""
    pattern: str | None = None
    cause: str | None = None
    task: str = ""
    remedy: dict[str, Any] | None = None
    was: tuple[str, ...] = ()
    now: tuple[str, ...] = ()
    plain: bool = False
    named: bool = False
    danger: bool = False
    calls: tuple[str, ...] = ()
    version: str = ""

    @property
    def said(self) -> str:
        """All that it says: sessions that say the same back each other's words."""
        if self.calls:
            return "\n".join(self.calls)
        remedy = arguments_text(self.remedy)
        return "\n".join((self.title, self.description, self.content, self.when, remedy, *self.was, "", *self.now))

    def to_json(self) -> bytes:
        return encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Candidate:
        """Raises msgspec.DecodeError (a ValueError) if it is no candidate."""
        return msgspec.json.decode(value, type=cls)


class Shown(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="shown"):
    """A session was shown an item. `agent`: the principal's name."""

    item_id: str
    tenant: str
    session: str
    agent: str

    def to_json(self) -> bytes:
        return encode(self)


class _Origin(TypedDict):
    """The fields of a `Candidate` that say where it comes from."""

    tenant: str
    session: str
    agent: str
    seen: float
    revision: tuple[int, float]
    goal: int


def origin(trajectory: Trajectory) -> _Origin:
    """The session's fields, as it is now."""
    return _Origin(
        tenant=trajectory.tenant,
        session=trajectory.id,
        agent=principal_of(trajectory.agent),
        seen=trajectory.ended,
        revision=trajectory.revision,
        goal=_hash(trajectory.goal or trajectory.task or trajectory.id),
    )


def item_id(version: str, tenant: str, kind: str, *key: str) -> str:
    """Id of a memory item. Another `version` of its distiller gives other ids, so items of two distillers never mix."""
    return _ITEM_PREFIX + pattern_id("item", version, tenant, kind, *key)[:28]


def is_item(id: str) -> bool:
    """Whether an id is that of an item that learns: no pattern and no fact."""
    return id.startswith(_ITEM_PREFIX)


def shown_items(trajectory: Trajectory) -> list[Shown]:
    """One for each learned item that the session was shown, sorted by id."""
    found = {id for step in trajectory.steps for id in step.advice if is_item(id)}
    return [
        Shown(item_id=id, tenant=trajectory.tenant, session=trajectory.session, agent=principal_of(trajectory.agent))
        for id in sorted(found)
    ]
