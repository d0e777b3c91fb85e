"""Count who backs a fact (principals, and a few sessions of each), and learn such facts from the arguments of calls.

Only if all agents have one owner (a quorum of 1) and one name do sessions with different goals count as agents.

A fact about a thing (`status` is `pending`) or an earlier call with it is a need if several agents' calls with it
mostly failed, and calls without it surely failed less often. For a value that a quorum replaced after it had failed,
the principals whose calls worked with it since then are counted: the tool may have changed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from fleetlore.advice.changes import parts_of
from fleetlore.calls.context import KnownObjects, Mark
from fleetlore.calls.document import Need, OldValue, old_value_key
from fleetlore.fingerprint.fingerprint import object_of
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import stable_hash, wilson
from fleetlore.wire.trajectory import Step, Trajectory

__all__ = ["Evidence", "Fact", "Facts", "Fleet", "NeedRecords", "OldValues", "Who"]

# Sessions of one agent that count: it cannot declare a table missing for all.
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


class _Endings:
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


_LEAST_RATE = 0.5
KEPT = 4_096
# A field with more values describes the thing, and not its kind.
_MAX_VALUES = 12
_MOST = 256


class NeedRecords:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tools: dict[str, _Endings] = {}
        self._known: OrderedDict[tuple[str, str, str], dict[str, _Endings]] = OrderedDict()

    def learn(self, session: Trajectory, kinds: Iterable[tuple[str, tuple[str, ...]] | None]) -> None:
        objects = KnownObjects()
        met: set[tuple[str, Mark | None, bool]] = set()
        for step, kind in zip(session.calls, kinds, strict=True):
            if not step.transient:
                for mark in (None, *objects.marks(step.arguments)):
                    if (step.tool, mark, step.failed) not in met:
                        met.add((step.tool, mark, step.failed))
                        self._add(Who.of(session), step.tool, mark, kind[0] if kind is not None else None)
            if not step.failed:
                objects.record(step.tool, step.arguments, step.result)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    def _add(self, who: Who, tool: str, mark: Mark | None, kind: str | None) -> None:
        if mark is None:
            ended = self._tools.setdefault(tool, _Endings(self._fleet))
        else:
            key = tool, mark.argument, mark.field
            known = self._known.setdefault(key, {})
            self._known.move_to_end(key)
            if mark.value not in known and len(known) > _MAX_VALUES:
                return
            ended = known.setdefault(mark.value, _Endings(self._fleet))
        ended.add(who, kind)

    def said(self) -> tuple[Need, ...]:
        found = [
            need for key, known in self._known.items() if len(known) <= _MAX_VALUES for need in self._of(key, known)
        ]
        found.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.argument, each.field, each.value))
        return tuple(found[:_MOST])

    def _of(self, key: tuple[str, str, str], known: dict[str, _Endings]) -> Iterator[Need]:
        tool, argument, name = key
        all_failed, all_held = self._tools[tool].counts
        for value, ended in known.items():
            failed, held = ended.counts
            least = wilson(failed, held)[0]
            others = max(0, all_failed - failed), max(0, all_held - held)
            if not ended.failed.is_enough or least < _LEAST_RATE or wilson(*others)[1] >= least:
                continue
            yield Need(tool, argument, name, value, ended.kind, failed, held, ended.failed.agents)


_KEPT_OLD, _MOST_OLD = 20_000, 1_024
# A call that differs in more parts is no second attempt.
_MAX_REPLACED = 6


class OldValues:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # By its key: principals that replaced it, and those whose calls worked with it since then.
        self._known: OrderedDict[int, tuple[Evidence, Evidence]] = OrderedDict()

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
            by, _ = self._known.setdefault(key, (Evidence(self._fleet), Evidence(self._fleet)))
            by.add(who)
            self._known.move_to_end(key)
        for key in (worked - replaced) & self._known.keys():
            by, since = self._known[key]
            if by.agents >= self._fleet.quorum:
                since.add(who)
        while len(self._known) > _KEPT_OLD:
            self._known.popitem(last=False)

    def version(self) -> tuple[OldValue, ...]:
        found = [
            OldValue(key, by.agents, since.agents)
            for key, (by, since) in self._known.items()
            if by.agents >= self._fleet.quorum
        ]
        return tuple(sorted(found, key=lambda each: (-each.replaced, each.key))[:_MOST_OLD])


def _keys(call: Step) -> frozenset[int]:
    found = parts_of(object_of(call.arguments))
    return frozenset([old_value_key(call.tool, part) for part, is_argument in found if is_argument])
