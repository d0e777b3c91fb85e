"""Define lore: what comes back to the agents, as it lies on the compacted topics `patterns` and `items`.

Beside it lie an operator's `decisions` about it, the newest on each thing for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from sys import intern
from typing import Any, Literal, TypeVar

import orjson

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.decode import json_reader
from fleetlore.wire.trajectory import Count, JsonStruct, Moment

Figures = Literal["all", "hours", "days"]
Level = Literal["tool", "call", "family", "class", "exact"]
ItemKind = Literal["recovery", "strategy"]

# Error class of a loop (`fleetlore.fingerprint.loops`): a pattern of calls none of which need have failed.
LOOP = "loop"

# Agents of a pattern that are told apart: what more have seen does not hang on the word of a few.
NAMED_BACKERS = 8
# Before the names, in the title of a recovery, that worked where an error had rejected another.
INSTEAD_OF = " — instead"
# Of a way that solved a task: before the goal in its title.
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
        transient: a fault that passes by itself (503, time-out, rate limit): never a lesson.
        calls: how many calls (of a failure pattern: the same as `failures`; of a loop: those in it).
        failures: how many of them failed; of a loop 0, for it says nothing of how often calls fail.
        sessions, agents: how many distinct ones saw it.
        sessions_ended, sessions_failed: of those sessions, how many are known to have ended well or badly, and badly;
            of an agent no more than of the median agent.
        first_seen, last_seen: event times in seconds since the Unix epoch: when a second agent saw it (the first one
            while it is alone), and when it was seen last.
        other_words: how many agents met it in other words than these, as far as is known: an error with a code is the
            same one in any words.
        agents_lately: of a transient pattern: how many agents met it in the two minutes before `last_seen`.
        estimated: which figures are estimates, because more sessions were met than are kept: `all` (of calls, failures
            and sessions), `hours`, `days` (and `by_agent`). The others are exact.
        hours, days: of a tool or a family: (number of the hour or day since the epoch, calls, failures), newest first;
            a session counts where it first saw it. Periods without a call are left out.
        by_agent: of a tool: (agent, calls, failures) over the days, the surest to be failing first; at most a few
            agents.
        seen_by: hashes of the names of all agents that saw it; empty where there are more than `NAMED_BACKERS`.
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

        Raises:
            ValueError: it is no such JSON.
        """
        return _sharing(_read_pattern(value), "tenant", "tool", "error_class", "shape", "parent", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """Something worth telling the next agent, with its lineage.

    Attributes:
        when: the situation in which it applies, in words.
        tool, pattern, task: the same for a machine: the tool, the class-level pattern id and the task it is about;
            empty or None where it is not bound to one.
        remedy: the call that helped, `{"tool": str}`; if one value was changed, also `"change"`: name of the argument,
            value that failed, value that worked.
        was, now: of a changed call: the parts that are gone and those that came, as the title shows them; of an
            argument `name=value`.
        danger: in a session that backs it a call of it, as it was made, could do harm (`fleetlore.watch.harm`).
        support: how many distinct sessions back it, in the very words that it says; `agents`: how many distinct agents;
            `goals`: how many distinct goals these sessions had.
        delayed: how many of the agents did not get there by their next call: to the others it was no news.
        against: how many distinct sessions contradict it, were their agents as busy as those that back it: one agent
            contradicts as much as one agent backs.
        sessions: keys of a few of those sessions, by which a person finds them in the console or in Milvus. They are
            hashes (`session_key`): readers of lore learn no ids of others.
        first_seen, last_seen: event times in seconds since the Unix epoch: when a second agent contributed (the first
            one while it is alone), and the newest session; 0 where it is not known.
        version: of the distiller.
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

    @property
    def text(self) -> str:
        """What it says, as one text: a search finds it by this."""
        return "\n".join((self.title, self.description, self.when, self.content))

    def standing(self) -> float:
        """What the item is backed by, halved for each half-life since it was last seen, as a logarithm to base 2.

        Agents count first: what many sessions of one agent say may be that agent's own, so all of them count less than
        one agent more. Contradictions take their share of both. Of two items the same one stands higher at any moment,
        so items can be kept in order without a clock.
        """
        return standing(self.agents, self.support, self.against, self.last_seen)

    def worth(self) -> tuple[float, int, float, str]:
        """Sort key of items about different things, by what they tell those who meet another task; higher is better.

        - breadth: agents that did not get there by their next call, at most as many as goals, less the share that
          contradicts; 0 where one agent or one goal alone backs the item;
        - scope: 3 backed by several goals, 2 an error met at one goal, 1 the way that solved one;
        - `standing`; then the id.
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


DecisionKind = Literal["item", "pattern", "agent"]
DECISIONS = "decisions"


class Decision(JsonStruct, frozen=True, kw_only=True):
    """A decision about one thing; the newest one counts.

    Attributes:
        id: of the item or pattern; of an agent its name.
        on: an item or pattern is revoked, an agent distrusted; False where that is undone.
        by: who decided it.
        time: when, in seconds since the Unix epoch.
    """

    kind: DecisionKind
    id: str
    on: bool
    by: str
    why: str
    time: float

    @property
    def key(self) -> str:
        """Key of its record on `decisions`."""
        return f"{self.kind}/{self.id}"
