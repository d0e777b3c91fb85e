"""Count sessions in a bounded sample that counts no session twice and that no single agent can fill.

A record that is processed twice makes an incremented count wrong. So a count is a *set* of sessions with cumulative
values: merging takes the union and joins the two values of one session. An agent's sessions with the smallest hashes
are kept (bottom-k: Bar-Yossef et al. 2002; Cohen and Kaplan 2007): up to `turn` of every agent, then up to `turn` more,
until there are `k`. The kept sessions depend on the set alone, as an agent's nth smallest hash only falls. Above `k`
sessions, sums are estimates.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import fsum
from operator import mul
from statistics import median_high
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from msgspec import Meta

from fleetlore.wire.stats import HASHES, stable_hash

__all__ = ["AgentHash", "BottomK", "SessionCounts"]

T = TypeVar("T", bound="_OfAgent")
_Kind = TypeVar("_Kind", bound=int | tuple[str, ...])

K = 256
# Hash of an agent's name, or a negative number in place of an erased session's.
AgentHash = Annotated[int, Meta(ge=-HASHES, lt=HASHES)]
# Sessions of one agent that count for results of resends.
AGENT_RESENDS = 10
# A single agent for which it worked is ignored if it failed for at least so many others.
_SEVERAL = 3
WELL, BADLY = 1, 2


class _OfAgent(Protocol):
    @property
    def agent(self) -> int: ...


class BottomK(ABC, Generic[T]):
    """A mergeable sample of at most `k` sessions: a join-semilattice. `kept`: value by session hash."""

    __slots__ = ("_of_agent", "_order", "k", "kept")
    # Sessions of an agent that are kept before another's.
    turn: ClassVar = 4

    def __init__(self, k: int = K, kept: Iterable[tuple[int, T]] = ()) -> None:
        self.k = k
        self.kept: dict[int, T] = dict(kept)
        # Indexes of a full sample: each agent's sorted sessions, and the sorted ranks of their last ones.
        self._of_agent: dict[int, list[int]] = {}
        self._order: list[tuple[int, int, int]] = []

    @staticmethod
    @abstractmethod
    def join(old: T, new: T) -> T:
        """Join two values of one session: commutative, associative and idempotent."""

    @abstractmethod
    def placeholder(self, agent: int) -> T:
        """The value in place of an erased session. `agent`: negative."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.k == other.k and self.kept == other.kept

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, session: int, value: T) -> bool:
        old = self.kept.get(session)
        if old is not None:
            new = self.join(old, value)
            if new == old:
                return False
            self.kept[session] = new
            if new.agent != old.agent:
                self._of_agent = {}
            return True
        if not self.has_room(session, value.agent):
            return False
        if self.is_full:
            self._make_room(session, value.agent)
        self.kept[session] = value
        return True

    def has_room(self, session: int, agent: int) -> bool:
        if not self.is_full or session in self.kept:
            return True
        if not self._of_agent:
            self._index()
        own = self._of_agent.get(agent, [])
        # Adding one makes its agent's last session the next in turn.
        return bool(own and session < own[-1]) or (len(own) // self.turn, session) < self._order[-1][:2]

    def shrink(self, k: int) -> None:
        self.k, self._of_agent = k, {}
        if len(self.kept) <= k:
            return
        nth = Counter[int]()
        turns = []
        for session in sorted(self.kept):
            agent = self.kept[session].agent
            turns.append((nth[agent] // self.turn, session))
            nth[agent] += 1
        self.kept = {session: self.kept[session] for _, session in sorted(turns)[:k]}

    @property
    def is_full(self) -> bool:
        """Whether it may represent more than it keeps."""
        return len(self.kept) >= self.k

    def _make_room(self, session: int, agent: int) -> None:
        own = self._of_agent.setdefault(agent, [])
        turn = len(own) // self.turn
        if own:
            del self._order[bisect_left(self._order, self._rank(agent, own))]
        insort(own, session)
        if not self._order or (turn, own[-1]) > self._order[-1][:2]:
            gone = own.pop()
        else:
            _, gone, loser = self._order.pop()
            others = self._of_agent[loser]
            others.pop()
            if others:
                insort(self._order, self._rank(loser, others))
            else:
                del self._of_agent[loser]
        insort(self._order, self._rank(agent, own))
        del self.kept[gone]

    def _index(self) -> None:
        of_agent: defaultdict[int, list[int]] = defaultdict(list)
        for session in sorted(self.kept):
            of_agent[self.kept[session].agent].append(session)
        self._of_agent = dict(of_agent)
        self._order = sorted([self._rank(agent, own) for agent, own in of_agent.items()])

    def merge(self, other: Self) -> bool:
        # A list, because `any` of a generator would stop at the first change.
        return any([self.add(session, value) for session, value in other.kept.items()])

    def discard(self, sessions: Collection[int]) -> bool:
        """Without placeholders, a full sample would seem complete."""
        gone: defaultdict[int, list[int]] = defaultdict(list)
        for session in sessions:
            if session in self.kept:
                gone[self.kept[session].agent].append(session)
        if not gone:
            return False
        if self.is_full:
            self._index()
            for agent, own in gone.items():
                erased = self.placeholder(-1 - stable_hash(f"nobody/{min(own)}"))
                below = max(self._of_agent[agent][-1], 1)
                self.kept |= {stable_hash(f"nobody/{session}") % below: erased for session in own}
        for session in (session for own in gone.values() for session in own):
            del self.kept[session]
        self._of_agent = {}
        return True

    @property
    def scales(self) -> dict[int, float]:
        """How many sessions a kept session of each agent represents."""
        if not self.is_full:
            return dict.fromkeys({value.agent for value in self.kept.values()}, 1.0)
        if not self._of_agent:
            self._index()
        turn, greatest, _ = self._order[-1]
        return {agent: self._scale(own, turn, greatest) for agent, own in self._of_agent.items()}

    def _scale(self, own: list[int], turn: int, greatest: int) -> float:
        if len(own) < self.turn * turn:
            return 1.0  # a further one would have been kept
        if len(own) < self.turn * (turn + 1) and own[-1] < greatest:
            return HASHES / greatest  # every session with a smaller hash was kept
        return max(1.0, (len(own) - 1) / len(own) * HASHES / max(own[-1], 1))

    def sorted(self) -> list[tuple[int, T]]:
        return [(session, self.kept[session]) for session in sorted(self.kept)]

    def _rank(self, agent: int, own: list[int]) -> tuple[int, int, int]:
        return (len(own) - 1) // self.turn, own[-1], agent


def even(kinds: Iterable[tuple[int, _Kind]], scales: Mapping[int, float]) -> defaultdict[_Kind, float]:
    """Count the sessions of each kind. No agent counts for more than the median agent, as it may lie.

    `kinds`: agent and kind of each session. `scales`: sessions that one of an agent represents, by default 1.
    """
    kept, of_agent = Counter(kinds), Counter[int]()
    for (agent, _), count in kept.items():
        of_agent[agent] += count
    most = median_high([count * scales.get(agent, 1.0) for agent, count in of_agent.items()] or [0.0])
    counted = defaultdict[_Kind, float](float)
    for agent, kind in sorted(kept):
        counted[kind] += kept[agent, kind] * min(scales.get(agent, 1.0), most / of_agent[agent])
    return counted


class SessionCounts(NamedTuple):
    """Cumulative counts of one session.

    `ended`: 0 unknown, 1 well, 2 badly. `again`: whether a failed call was sent again unchanged, with no successful
    call between: 0 no, 1 it always failed again, 2 + n it worked n seconds after the failure.
    """

    agent: int
    calls: int
    failures: int
    ended: int = 0
    again: int = 0


class Resends(NamedTuple):
    """Sessions that sent a failed call again unchanged: how many, in how many it worked, for how many agents it ended
    as in most, and the median seconds until it worked."""

    sessions: int
    worked: int
    agents: int
    seconds: int


class SampleTotals(NamedTuple):
    """Sums over all sessions of a sample. `agents`: above `k` sessions a lower bound. `sessions_ended`: those with a
    known end, counted by `even`; `sessions_failed`: those that ended badly."""

    sessions: int
    agents: int
    calls: int
    failures: int
    sessions_ended: int
    sessions_failed: int


class CountSample(BottomK[SessionCounts]):
    __slots__ = ()

    @staticmethod
    def join(old: SessionCounts, new: SessionCounts) -> SessionCounts:
        return SessionCounts(*map(max, old, new))

    def placeholder(self, agent: int) -> SessionCounts:
        return SessionCounts(agent, 0, 0)

    @property
    def seen(self) -> list[SessionCounts]:
        return [seen for seen in self.kept.values() if seen.agent >= 0]

    @property
    def totals(self) -> SampleTotals:
        """One pass: a busy pattern asks with every write."""
        known = self.seen
        if not known:
            return SampleTotals(0, 0, 0, 0, 0, 0)
        agents, _, _, ended, _ = zip(*known, strict=True)
        sessions, calls, failures = self._sums(known)
        return SampleTotals(sessions, len(set(agents)), calls, failures, *self._ends(zip(agents, ended, strict=True)))

    @property
    def resends(self) -> Resends | None:
        ended: dict[int, list[int]] = {}
        for _, seen in self.sorted() if any(seen.again for seen in self.kept.values()) else ():
            if seen.again and len(ended.setdefault(seen.agent, [])) < AGENT_RESENDS:
                ended[seen.agent].append(seen.again)
        worked = [agent for agent, known in ended.items() if max(known) > 1]
        # One agent cannot hide that a call always failed for several others.
        if len(worked) == 1 and len(ended) > _SEVERAL:
            del ended[worked.pop()]
        found = [again for known in ended.values() for again in known]
        seconds = [again - 2 for again in found if again > 1]
        failed = [agent for agent, known in ended.items() if min(known) == 1]
        agents = worked if 2 * len(seconds) > len(found) else failed
        return Resends(len(found), len(seconds), len(agents), median_high(seconds or (0,))) if found else None

    @property
    def calls_and_failures(self) -> tuple[int, int]:
        return self._sums(self.seen)[1:]

    @property
    def balanced(self) -> tuple[int, int]:
        """Calls and failures, of no agent more than of the median one: one alone could hide the failures of others."""
        ends = Counter[tuple[int, int]]()
        for seen in self.seen:
            ends[seen.agent, BADLY] += seen.failures
            ends[seen.agent, WELL] += seen.calls - seen.failures
        counted = even(+ends, {})
        return round(counted[WELL] + counted[BADLY]), round(counted[BADLY])

    def _sums(self, known: list[SessionCounts]) -> tuple[int, int, int]:
        if not self.is_full:
            return len(known), sum([each.calls for each in known]), sum([each.failures for each in known])
        scales = self.scales
        of_each = [scales[each.agent] for each in known]
        calls, failures = [each.calls for each in known], [each.failures for each in known]
        return round(fsum(of_each)), round(fsum(map(mul, of_each, calls))), round(fsum(map(mul, of_each, failures)))

    def _ends(self, ends: Iterable[tuple[int, int]]) -> tuple[int, int]:
        known = [(agent, end) for agent, end in ends if end]
        if not self.is_full and len({agent for agent, _ in known}) < 2:
            return len(known), sum([end == BADLY for _, end in known])
        counted = even(known, self.scales if self.is_full else {})
        return round(counted[WELL] + counted[BADLY]), round(counted[BADLY])

    def to_rows(self) -> list[list[Any]]:
        """Sorted rows (session, agent, calls, failures, ended, and `again` if it is not 0)."""
        return [[session, *(seen if seen.again else seen[:-1])] for session, seen in self.sorted()]

    @classmethod
    def from_rows(cls, rows: Iterable[list[int]], k: int = K) -> Self:
        return cls(k, [(session, SessionCounts(*seen)) for session, *seen in rows])


class AgentSample(CountSample):
    """Sessions kept to count agents: one of each before a second one of any."""

    __slots__ = ()
    turn = 1


class FirstSeen(dict[int, float]):
    """The first two agents (hashes) and times of something. One alone could be early, so the second one counts."""

    def note(self, agent: int, moment: float) -> bool:
        if moment >= self.get(agent, float("inf")):
            return False
        before = dict(self)
        self[agent] = moment
        if len(self) > 2:
            del self[max(self, key=lambda each: (self[each], each))]
        return self != before

    @property
    def moment(self) -> float:
        """When the second agent met it, or a lone first one."""
        return max(self.values(), default=0.0)
