"""Count who backs a fact (principals, and a few sessions of each), and learn such facts from the arguments of calls.

Only if all agents have one owner (a quorum of 1) and one name do sessions with different goals count as agents.

For a value that a quorum replaced after it had failed, the principals whose calls worked with it since then are
counted: the tool may have changed.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import fsum
from statistics import median_low
from typing import NamedTuple, Self, TypeVar

from fleetlore.advice.changes import parts_of
from fleetlore.calls.document import OldValue, old_value_key
from fleetlore.fingerprint.fingerprint import object_of
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.trajectory import Step, Trajectory

__all__ = ["Evidence", "Fact", "Facts", "Fleet", "OldValues", "Who", "in_turns"]

# Sessions of one agent that count: it cannot declare a table missing for all.
AGENT_SESSIONS = 5
# Even with a quorum of 1, one agent alone may be wrong.
_LEAST_AGENTS = 2
# Goals that count in a fleet under one name.
_MOST_GOALS = 16


Fact = TypeVar("Fact", bound=Hashable)


def in_turns(best: Iterable[Fact], owner: Callable[[Fact], str]) -> list[Fact]:
    """Sort facts, given the best first, so that no principal can fill a bound with its own.

    `owner`: the principal that alone brought a fact, or "". Principals take turns: the best of each and all facts of
    several come first, then the second best of each.
    """
    met: Counter[str] = Counter()
    turns: dict[Fact, int] = {}
    for fact in best:
        name = owner(fact)
        turns[fact] = met[name] if name else 0
        met[name] += 1
    return sorted(turns, key=lambda fact: turns[fact])


class Who(NamedTuple):
    agent: str
    goal: int

    @classmethod
    def of(cls, session: Trajectory) -> Self:
        goal = " ".join((session.goal or session.task).casefold().split())
        return cls(principal_of(session.agent), stable_hash(goal))


class Fleet:
    def __init__(self, quorum: int = 2) -> None:
        self.agents: set[str] = set()
        self.quorum = quorum

    @property
    def is_one(self) -> bool:
        return self.quorum == 1 and len(self.agents) <= 1


class Votes(NamedTuple):
    """Numbers of sessions. `lone`: the most of `passed` that one agent has."""

    failed: int
    passed: int
    lone: int


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
    def times(self) -> int:
        return sum(self._agents.values())

    @property
    def alone(self) -> str:
        """The only principal that has met the fact, or ""."""
        return next(iter(self._agents)) if len(self._agents) == 1 else ""

    def against(self, passed: Self) -> Votes:
        """Weigh sessions that failed against others. No agent has more of them than the median agent."""
        sides: list[Counter[Hashable]] = [Counter(side._counts) for side in (self, passed)]
        sessions = sides[0] + sides[1]
        usual = min(AGENT_SESSIONS, median_low(sessions.values()))
        failed, other = [[count * min(1.0, usual / sessions[agent]) for agent, count in side.items()] for side in sides]
        return Votes(round(fsum(failed)), round(fsum(other)), round(max(other, default=0.0)))

    @property
    def sessions(self) -> int:
        return sum(min(sessions, AGENT_SESSIONS) for sessions in self._counts.values())

    @property
    def is_enough(self) -> bool:
        return self.agents >= max(_LEAST_AGENTS, self._fleet.quorum)


class Facts(OrderedDict[Fact, Evidence]):
    """Evidence by fact, the latest last. Beyond `most`, principals take turns for the room, with their latest facts."""

    def __init__(self, fleet: Fleet, most: int) -> None:
        super().__init__()
        self._fleet = fleet
        self._most = most

    def count(self, fact: Fact, who: Who) -> list[Fact]:
        """Return the facts that are forgotten."""
        if fact not in self:
            self[fact] = Evidence(self._fleet)
        self[fact].add(who)
        self.move_to_end(fact)
        if len(self) <= self._most:
            return []
        # Several at once: all are sorted.
        gone = in_turns(reversed(self), lambda each: self[each].alone)[self._most - self._most // 8 :]
        for each in gone:
            del self[each]
        return gone


_KEPT_OLD, _MOST_OLD = 20_000, 1_024
# A call that differs in more parts is no second attempt.
_MAX_REPLACED = 6


class OldValues:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # By the value's key: principals that replaced it, and those whose calls worked with it since then.
        self._replaced = Facts[int](fleet, _KEPT_OLD)
        self._works: dict[int, Evidence] = {}

    def learn(self, who: Who, calls: Sequence[Step]) -> None:
        failed: dict[str, frozenset[int]] = {}
        replaced: set[int] = set()
        worked: set[int] = set()
        for call in calls:
            if call.failed:
                failed[call.tool] = _keys(call)
                continue
            made = _keys(call)
            gone = failed.pop(call.tool, frozenset()) - made
            replaced |= gone if len(gone) <= _MAX_REPLACED else frozenset()
            worked |= made
        for key in sorted(replaced):
            for forgotten in self._replaced.count(key, who):
                self._works.pop(forgotten, None)
        for key in (worked - replaced) & self._replaced.keys():
            if self._replaced[key].agents >= self._fleet.quorum:
                self._works.setdefault(key, Evidence(self._fleet)).add(who)

    def version(self) -> tuple[OldValue, ...]:
        found = [
            OldValue(key, by.agents, self._works[key].agents if key in self._works else 0)
            for key, by in self._replaced.items()
            if by.agents >= self._fleet.quorum
        ]
        return tuple(sorted(found, key=lambda each: (-each.replaced, each.key))[:_MOST_OLD])


def _keys(call: Step) -> frozenset[int]:
    found = parts_of(object_of(call.arguments))
    return frozenset([old_value_key(call.tool, part) for part, is_argument in found if is_argument])
