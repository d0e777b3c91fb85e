"""Define lore (the compacted topics `patterns` and `items`) and the operators' `decisions` about it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from hashlib import blake2b
from sys import intern
from typing import Literal, TypeVar

import orjson
from msgspec.structs import replace

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.decode import json_reader
from fleetlore.wire.trajectory import Count, JsonStruct, Moment

Figures = Literal["all", "hours", "days"]
Level = Literal["tool", "call", "family", "class", "exact"]
ItemKind = Literal["recovery", "strategy"]

# Error class of a loop, whose calls may all have worked.
LOOP = "loop"

# Maximum agents that a pattern lists.
NAMED_BACKERS = 8
# Precedes the names that worked in a recovery's title.
INSTEAD_OF = " — instead"
HOW_TO = "How to: "
_QUOTED = re.compile(r"`([^`]+)`")

PATTERN_LEVELS: tuple[Level, ...] = ("family", "class", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A failure pattern, or the health of a tool or of a kind of call.

    Attributes:
        id: 32 hex digits (`fleetlore.fingerprint.fingerprint`).
        level: `family`, `class`, `exact` (failures), or `tool`, `call` (health rows, which count successes too).
        parent: exact → class → family; call → tool.
        call: the kind of call that met an `exact` pattern.
        transient: 503, time-out, rate limit.
        calls: for failures equal to `failures`; for a loop its calls.
        failures: failed calls; 0 for a loop.
        sessions_ended, sessions_failed: sessions with a known end, and with a bad one. No agent counts more than the
            median one.
        first_seen: when the broker got it from a second agent (or the only one), in Unix seconds.
        last_seen: event time of the newest, in Unix seconds.
        last_but_one: of a kind of call: when the last agent but one made its newest, or 0.
        other_words: agents that met the same error code in other words.
        agents_lately: agents that met a transient pattern in the two minutes before `last_seen`.
        outages: of a transient pattern: (began in Unix seconds, seconds, agents) of each run of failures at most four
            minutes apart, newest first: from its second agent's first to its last but one agent's last failure.
        again: of unchanged repeats: sessions, those in which it worked, agents for whom most ended so, median seconds
            until it worked.
        estimated: inexact figures, because only some sessions are kept.
        balanced: calls and failures of a tool or kind of call, of no agent more than of the median one; of a tool in
            the newest hour in which several agents called it.
        hours, days: (hour or day since the epoch, calls, failures) of a tool or a family, newest first. A session
            counts when it first saw it.
        seen_by: hashes of its agents' names, or empty with more than `NAMED_BACKERS`.
    """

    id: str
    level: Level
    tenant: str
    tool: str
    error_class: str = ""
    template: str = ""
    shape: str = ""
    parent: str | None = None
    call: str | None = None
    transient: bool = False
    calls: Count = 0
    failures: Count = 0
    sessions: Count = 0
    agents: Count = 0
    sessions_ended: Count = 0
    sessions_failed: Count = 0
    first_seen: Moment = 0.0
    last_seen: Moment = 0.0
    last_but_one: Moment = 0.0
    other_words: Count = 0
    agents_lately: Count = 0
    outages: tuple[tuple[Count, Count, Count], ...] = ()
    again: tuple[Count, ...] = ()
    estimated: tuple[Figures, ...] = ()
    balanced: tuple[Count, ...] = ()
    hours: tuple[tuple[int, Count, Count], ...] = ()
    days: tuple[tuple[int, Count, Count], ...] = ()
    seen_by: tuple[int, ...] = ()

    @property
    def is_loop(self) -> bool:
        return self.error_class == LOOP and not self.failures

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes | str) -> Pattern:
        """Ignores the fields of newer writers. Raises ValueError."""
        pattern = _read_pattern(value)
        trials = (pattern.again[:2], pattern.balanced, *(each[1:] for each in (*pattern.hours, *pattern.days)))
        if len(pattern.again) not in (0, 4) or len(pattern.balanced) not in (0, 2):
            raise ValueError("a pattern's figures are incomplete")
        if any(each and each[1] > each[0] for each in trials):
            raise ValueError("a pattern has more failures than calls")
        return _sharing(pattern, "tenant", "tool", "error_class", "shape", "parent", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """A lesson for the next agent, with its lineage.

    Attributes:
        when: the situation in words.
        pattern: class-level id.
        was, now: removed and added parts of a changed call, as in the title. An argument is `name=value`.
        danger: its call could do harm (`fleetlore.watch.safety`).
        support: sessions that back it in these words.
        agents, goals: those of these sessions.
        delayed: agents that did not get there by their next call.
        against: sessions that contradict it, scaled so that one agent contradicts as much as one agent backs.
        sessions: keys (`session_key`) of a few of those sessions.
        first_seen: as in `Pattern`, or 0.
        last_seen: event time of the newest session in Unix seconds, or 0.
        version: of the distiller.
        proposed: a person must approve it first (`FLEETLORE_REVIEW`).
    """

    id: str
    tenant: str
    kind: ItemKind
    title: str
    description: str
    content: str
    when: str
    tool: str = ""
    pattern: str | None = None
    task: str = ""
    was: tuple[str, ...] = ()
    now: tuple[str, ...] = ()
    danger: bool = False
    support: Count = 0
    agents: Count = 0
    goals: Count = 0
    delayed: Count = 0
    sessions: tuple[str, ...] = ()
    first_seen: Moment = 0.0
    last_seen: Moment = 0.0
    version: str = ""
    against: Count = 0
    said_by: tuple[int, ...] = ()
    proposed: bool = False

    @property
    def wording(self) -> str:
        """Digest of the words shown to agents: an approval holds for these alone."""
        shown = [self.tool, self.content if self.kind == "strategy" else "", *self.was, "", *self.now]
        return blake2b("\x1f".join(shown).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    @property
    def text(self) -> str:
        return "\n".join((self.title, self.description, self.when, self.content))

    @property
    def is_sure(self) -> bool:
        return self.support > 2 * self.against

    @property
    def is_of_argument(self) -> bool:
        return bool(self.was) and all("=" in part for part in self.was)

    @property
    def names_beside(self) -> tuple[str, ...] | None:
        """Names that the call held next to the rejected one, or None if the item lists none that worked."""
        _, found, said = self.title.partition(INSTEAD_OF)
        return tuple(_QUOTED.findall(said.rpartition(": ")[0])) if found else None

    def is_own(self, key: str) -> bool:
        """Whether only this session, or a part of it, backs the item."""
        return self.support <= 1 and any(each.partition("#")[0] == key for each in self.sessions)

    def standing(self) -> float:
        """Return log2 of the item's backing, which halves each half-life after it was last seen.

        All sessions of one agent count less than one more agent. Time never changes the order of two items, so ordering
        needs no clock.
        """
        return standing(self.agents, self.support, self.against, self.last_seen)

    def worth(self) -> tuple[float, int, float, str]:
        """Return a sort key by the use for another task; higher is better.

        - Breadth: `delayed` agents, at most `goals`, less the share that contradicts; 0 for one agent or goal.
        - Scope: 3 backed by several goals, 2 an error met at one goal, 1 the way that solved one.
        """
        goals = 1 if self.task else self.goals
        scope = 3 if goals > 1 else 1 if self.kind == "strategy" else 2
        breadth = 0.0
        if min(self.agents, goals) > 1:
            breadth = min(self.delayed, goals) * max(0, self.support - self.against) / max(1, self.support)
        return breadth, scope, self.standing(), self.id

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes | str) -> MemoryItem:
        return _sharing(_read_item(value), "tenant", "tool", "pattern", "task", "version")


_Entry = TypeVar("_Entry", Pattern, MemoryItem)


def _sharing(entry: _Entry, *fields: str) -> _Entry:
    """Shared texts save 2 of 50 MB in an agent's replica."""
    for field in fields:
        if (text := getattr(entry, field)) is not None:
            object.__setattr__(entry, field, intern(text))
    return entry


_read_pattern = json_reader(Pattern)
_read_item = json_reader(MemoryItem)


def standing(agents: int, support: int, against: int, last_seen: float) -> float:
    sessions = max(1, support - against)
    kept = max(1.0, agents * sessions / max(1, support))
    return math.log2(kept + 1 - 1 / sessions) + last_seen / HALF_LIFE_SECONDS


DecisionKind = Literal["item", "pattern", "agent", "hint"]
DECISIONS = "decisions"
HISTORY = "decisions.history"
MAX_WHY = 500


class Hint(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Advice that a person wrote.

    Attributes:
        author: a principal that the operator vouches for.
        written, until: Unix seconds; `until` is 0 for no end.
        before: words of tool or arguments; shown before a call that holds all.
        after: class or pattern of a failure after which it is shown, or words in its error or tool.
        tool, place, task: exact names, or empty for any.
        replaces: id of the memory item that it hides.
    """

    text: str
    author: str
    written: Moment
    start: bool = False
    before: tuple[str, ...] = ()
    after: str = ""
    tool: str = ""
    place: str = ""
    task: str = ""
    until: Moment = 0.0
    replaces: str = ""

    @property
    def wording(self) -> str:
        """Digest of all but its end."""
        return blake2b(replace(self, until=0.0).to_json(), digest_size=8).hexdigest()


class Decision(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about one thing; the newest one counts.

    Attributes:
        id: of the item, pattern or hint, or the agent's name.
        on: False undoes it.
        time: Unix seconds.
        wording: `MemoryItem.wording` of an item that was approved, or "". It stays if the item is then revoked.
    """

    kind: DecisionKind
    id: str
    on: bool
    by: str
    why: str
    time: Moment
    hint: Hint | None = None
    wording: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"

    @property
    def effect(self) -> str:
        if self.kind == "agent":
            return "distrusted" if self.on else "trusted"
        ends = self.hint is not None and 0 < self.hint.until <= self.time
        return "revoked" if self.on else "ended" if ends else "approved" if self.wording else "shown"

    @property
    def moment(self) -> str:
        """Return its key in the history."""
        return f"{self.key}@{self.time}"

    @property
    def records(self) -> tuple[tuple[str, str], ...]:
        """Return its topics in write order, each with its key."""
        return (HISTORY, self.moment), (DECISIONS, self.key)
