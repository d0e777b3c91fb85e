"""Count who backs a fact: principals, and a few sessions of each.

This one rule holds for every fact of a version. Only if all agents have one owner (a quorum of 1) and one name do
sessions with different goals stand for agents.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeVar

from fleetlore.stats import stable_hash
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory

__all__ = ["Endings", "Evidence", "Fact", "Facts", "Fleet", "Who"]

# Sessions of one agent that count, so that it cannot declare a table missing for all.
AGENT_SESSIONS = 5
# Even with a quorum of 1, one agent alone may be wrong.
_LEAST_AGENTS = 2
# Goals that count in a fleet under one name.
_MOST_GOALS = 16


Fact = TypeVar("Fact", bound=Hashable)


class Who(NamedTuple):
    agent: str
    goal: int

    @classmethod
    def of(cls, session: Trajectory) -> Who:
        goal = " ".join((session.goal or session.task).casefold().split())
        return cls(principal_of(session.agent), stable_hash(goal))


class Fleet:
    def __init__(self, quorum: int = 2) -> None:
        self.agents: set[str] = set()
        self.quorum = quorum

    @property
    def is_one(self) -> bool:
        return self.quorum == 1 and len(self.agents) <= 1


class Evidence:
    __slots__ = ("_agents", "_fleet", "_goals")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._agents: dict[str, int] = {}
        # Only while one agent alone has met the fact.
        self._goals: dict[int, int] = {}

    def add(self, who: Who) -> None:
        self._agents[who.agent] = self._agents.get(who.agent, 0) + 1
        if len(self._agents) > 1:
            self._goals = {}
        elif who.goal in self._goals or len(self._goals) < _MOST_GOALS:
            self._goals[who.goal] = self._goals.get(who.goal, 0) + 1

    @property
    def _counts(self) -> dict[str, int] | dict[int, int]:
        return self._goals if self._fleet.is_one else self._agents

    @property
    def agents(self) -> int:
        return len(self._counts)

    @property
    def sessions(self) -> int:
        return sum(min(sessions, AGENT_SESSIONS) for sessions in self._counts.values())

    @property
    def is_enough(self) -> bool:
        return self.agents >= max(_LEAST_AGENTS, self._fleet.quorum)


class Endings:
    __slots__ = ("_worked", "failed", "kinds")

    def __init__(self, fleet: Fleet) -> None:
        self.failed = Evidence(fleet)
        self.kinds: Counter[str] = Counter()
        self._worked = Evidence(fleet)

    def add(self, who: Who, kind: str | None) -> None:
        if kind is None:
            self._worked.add(who)
        else:
            self.failed.add(who)
            self.kinds[kind] += 1

    @property
    def counts(self) -> tuple[int, int]:
        return self.failed.sessions, self.failed.sessions + self._worked.sessions

    @property
    def kind(self) -> str:
        return min(self.kinds, key=lambda each: (-self.kinds[each], each))


class Facts(OrderedDict[Fact, Evidence]):
    """Evidence by fact. Beyond `most`, those met the longest ago are forgotten."""

    def __init__(self, fleet: Fleet, most: int) -> None:
        super().__init__()
        self._fleet = fleet
        self._most = most

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of an ordered dict would be made without arguments.
        return type(self), (self._fleet, self._most), None, None, iter(self.items())

    def count(self, fact: Fact, who: Who) -> None:
        if fact not in self:
            self[fact] = Evidence(self._fleet)
        self[fact].add(who)
        self.move_to_end(fact)
        while len(self) > self._most:
            self.popitem(last=False)
