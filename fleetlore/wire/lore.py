"""Define lore: what comes back to the agents, as it lies on the compacted topics `patterns` and `items`.

Beside it lie an operator's `decisions` about it, the newest on each thing for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from sys import intern
from typing import Any, Literal, TypeVar

import orjson

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.decode import json_reader
from fleetlore.wire.trajectory import Count, JsonStruct, Moment

Figures = Literal["all", "hours", "days"]
Level = Literal["tool", "call", "family", "class", "exact"]
ItemKind = Literal["recovery", "strategy"]

# Error class of a loop (`fleetlore.fingerprint.loops`): a pattern of calls, even if all of them worked.
LOOP = "loop"

# A pattern lists the agents that saw it up to this number. With more, a few false reports do not matter.
NAMED_BACKERS = 8
# The title of a recovery has this before the names that worked in place of a rejected one.
INSTEAD_OF = " — instead"
# The title of a way that solved a task has this before the goal.
HOW_TO = "How to: "

PATTERN_LEVELS: tuple[Level, ...] = ("family", "class", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A failure pattern, or the health of a tool or of a kind of call.

    Attributes:
        id: 32 hex digits (`fleetlore.fingerprint.fingerprint`).
        level: `family`, `class`, `exact` are failures; `tool` and `call` are health rows, which count successes too.
        parent: the next coarser row: exact → class → family; call → tool.
        call: of an `exact` pattern: the kind of call that met it, whose health row says how often it works.
        transient: whether it is a transient fault (503, time-out, rate limit), which is never a lesson.
        calls: number of calls. A failure pattern has as many as `failures`, and a loop counts the calls in it.
        failures: number of calls that failed. A loop has 0, because it is no measure of how often calls fail.
        sessions, agents: numbers of distinct sessions and agents that saw it.
        sessions_ended: number of those sessions whose end is known. No agent counts for more than the median agent.
        sessions_failed: number of those that ended badly, counted in the same way.
        first_seen: when the broker got it from a second agent (the first agent while it is the only one), in seconds
            since the Unix epoch.
        last_seen: event time in seconds since the Unix epoch when it was seen last.
        other_words: number of agents, as far as is known, that met it in other words than these. An error with a code
            is the same one in any words.
        agents_lately: number of agents that met a transient pattern in the two minutes before `last_seen`.
        again: sessions that sent a call that had failed so again unchanged, with no call that worked between: how many,
            in how many it worked, of how many agents, median seconds after which it worked. Empty if there are none.
        estimated: figures that are estimates, because more sessions were met than are kept: `all` (calls, failures and
            sessions), `hours`, `days` (and `by_agent`). The others are exact.
        hours, days: (number of the hour or day since the epoch, calls, failures) of a tool or a family, newest first.
            A session counts in the period in which it first saw it. Periods without a call are left out.
        by_agent: (agent, calls, failures) of a tool over the days, for a few agents, the surest to be failing first.
        seen_by: hashes of the names of all agents that saw it, or empty if there are more than `NAMED_BACKERS`.
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
    other_words: Count = 0
    agents_lately: Count = 0
    again: tuple[Count, ...] = ()
    estimated: tuple[Figures, ...] = ()
    hours: tuple[tuple[int, Count, Count], ...] = ()
    days: tuple[tuple[int, Count, Count], ...] = ()
    by_agent: tuple[tuple[str, Count, Count], ...] = ()
    seen_by: tuple[int, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether it is of calls that looped. A tool may call an error so too, but that has failed."""
        return self.error_class == LOOP and not self.failures

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes | str) -> Pattern:
        """Read what this version knows: a newer writer may have added fields, and an agent is updated last of all.

        Raises ValueError: it is no such JSON.
        """
        return _sharing(_read_pattern(value), "tenant", "tool", "error_class", "shape", "parent", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """Something worth telling the next agent, with its lineage.

    Attributes:
        when: the situation in which it applies, in words.
        tool, pattern, task: the same for a machine: the tool, the class-level pattern id and the task it is about. They
            are empty or None if it is not bound to one.
        remedy: the call that helped, `{"tool": str}`. If one value was changed it also has `"change"`: name of the
            argument, value that failed, value that worked.
        was: the parts of a changed call that are gone, as the title shows them. An argument is `name=value`.
        now: the parts that came, in the same form.
        danger: whether a call of it could do harm as a backing session made it (`fleetlore.watch.harm`).
        support: number of distinct sessions that back it with these very words.
        agents: number of distinct agents of these sessions.
        goals: number of distinct goals of these sessions.
        delayed: number of the agents that did not get there by their next call. To the others it was no news.
        against: number of distinct sessions that contradict it, scaled as if their agents were as busy as those that
            back it: one agent contradicts as much as one agent backs.
        sessions: keys of a few of those sessions, by which a person finds them in the console or in Milvus. They are
            hashes (`session_key`), so readers of lore learn no ids of others.
        first_seen: when the broker got it from a second agent (the first agent while it is the only one), in seconds
            since the Unix epoch, or 0 if unknown.
        last_seen: event time of the newest session in seconds since the Unix epoch, or 0 if unknown.
        version: version of the distiller.
        proposed: whether agents are shown it only after a person has approved it (`FLEETLORE_REVIEW`).
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
    remedy: dict[str, Any] | None = None
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
        """Digest of the words that an agent may be shown. An approval holds for these words alone."""
        shown = [self.tool, self.content if self.kind == "strategy" else "", *self.was, "", *self.now]
        return blake2b("\x1f".join(shown).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    @property
    def text(self) -> str:
        """Its whole content as one text, by which a search finds it."""
        return "\n".join((self.title, self.description, self.when, self.content))

    def standing(self) -> float:
        """The item's backing, halved for each half-life since it was last seen, as a logarithm to base 2.

        Agents count first: many sessions of one agent may report that agent's own peculiarity, so all of them count
        less than one more agent. Contradictions reduce both shares. The order of two items never changes with time, so
        items can be kept in order without a clock.
        """
        return standing(self.agents, self.support, self.against, self.last_seen)

    def worth(self) -> tuple[float, int, float, str]:
        """Sort key of items about different things by their use for another task; higher is better.

        - Breadth: agents that did not get there by their next call, at most as many as goals, less the share that
          contradicts. It is 0 if one agent or one goal alone backs the item.
        - Scope: 3 backed by several goals, 2 an error met at one goal, 1 the way that solved one.
        - `standing`, then the id.
        """
        goals = 1 if self.task else self.goals  # what solved a task is that task's
        scope = 3 if goals > 1 else 1 if self.kind == "strategy" else 2
        breadth = 0.0
        if min(self.agents, goals) > 1:
            breadth = min(self.delayed, goals) * max(0, self.support - self.against) / max(1, self.support)
        return breadth, scope, self.standing(), self.id

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes | str) -> MemoryItem:
        """Read what this version knows, as `Pattern.from_json` does. Raises ValueError."""
        return _sharing(_read_item(value), "tenant", "tool", "pattern", "task", "version")


_Entry = TypeVar("_Entry", Pattern, MemoryItem)


def _sharing(entry: _Entry, *fields: str) -> _Entry:
    """The entry, with the same text as others have in these fields: of an agent's replica 2 MB of 50."""
    for field in fields:
        if (text := getattr(entry, field)) is not None:
            object.__setattr__(entry, field, intern(text))
    return entry


_read_pattern = json_reader(Pattern)
_read_item = json_reader(MemoryItem)


def standing(agents: int, support: int, against: int, last_seen: float) -> float:
    """How well something is backed: see `MemoryItem.standing`."""
    sessions = max(1, support - against)
    kept = max(1.0, agents * sessions / max(1, support))
    return math.log2(kept + 1 - 1 / sessions) + last_seen / HALF_LIFE_SECONDS


DecisionKind = Literal["item", "pattern", "agent", "hint"]
DECISIONS = "decisions"
# Every decision for years, where `DECISIONS` keeps the newest one on each thing.
HISTORY = "decisions.history"
# Characters of the reason of a decision.
MAX_WHY = 500


class Hint(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Advice that a person wrote.

    Attributes:
        author: its author, a principal that the operator vouches for.
        written: when, in seconds since the Unix epoch.
        start: whether it is shown at the start of a session.
        before: words of the tool or the arguments. It is shown before a call that holds all of them.
        after: it is shown after a failure of this class or pattern, or with these words in its error or tool.
        tool, place, task: exact names. Empty means any.
        until: when it ends, in seconds since the Unix epoch. 0 means never.
        replaces: id of the memory item that it corrects. Agents are shown the hint and not the item.
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


class Decision(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about one thing; the newest one counts.

    Attributes:
        id: of the item, pattern or hint; of an agent its name.
        on: an item, a pattern or a hint is revoked, an agent distrusted; False where that is undone.
        by: who decided it.
        time: when, in seconds since the Unix epoch.
        hint: the hint as it was decided.
        wording: `MemoryItem.wording` of an item that was approved, or "".
    """

    kind: DecisionKind
    id: str
    on: bool
    by: str
    why: str
    time: float
    hint: Hint | None = None
    wording: str = ""

    @property
    def key(self) -> str:
        """Key of its record on `decisions`."""
        return f"{self.kind}/{self.id}"

    @property
    def records(self) -> tuple[tuple[str, str], ...]:
        """The topics that it is written to, each with its key there. The history is written first."""
        return (HISTORY, f"{self.key}@{self.time}"), (DECISIONS, self.key)
