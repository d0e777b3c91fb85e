"""Merge contributions into the state behind one memory item.

Merging commutes and is idempotent, so the item depends on the *set* of contributions alone. A session judged again
replaces its contribution. The state samples sessions for the counts and keeps a few examples of each side. A corrected
session may leave a gap among these until the log is replayed.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Self

import msgspec
from msgspec.structs import replace

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.stats import cached_hash
from fleetlore.wire.trajectory import encode
from models.memory.bottom_k import BottomK, FirstSeen
from models.memory.candidate import QUORUM_AGENTS, Candidate, Contributor, Side, votes, way, weigh

__all__ = ["ItemState"]

SAMPLED_SESSIONS = 64
EXAMPLES = 3
_STRATEGY_EXAMPLES = 6
# Fields of the shown contribution that an item repeats.
_SHOWN = ("tenant", "kind", "title", "description", "content", "when", "tool", "task", "was", "now", "version")
# If one session and revision has two sides, the first one here counts.
_PRECEDENCE: dict[Side, int] = {"withdrawn": 0, "success": 1, "failure": 2}


class _Contributors(BottomK[Contributor]):
    __slots__ = ()

    def __init__(self, kept: Iterable[tuple[int, Contributor]] = ()) -> None:
        super().__init__(SAMPLED_SESSIONS, kept)

    @staticmethod
    def join(old: Contributor, new: Contributor) -> Contributor:
        return max(old, new)

    def placeholder(self, agent: int) -> Contributor:
        return Contributor((0, 0.0), "withdrawn", agent, 0.0)


@dataclass(slots=True)
class ItemState:
    """All that is known about one memory item. Single writer per item id.

    `examples`: a few of each side, best first, one a session. `open`: contributions by a few sessions that go on;
    shown, but nothing stays of them. `last_seen`: event time of the newest contribution.
    """

    contributors: _Contributors = field(default_factory=_Contributors)
    examples: dict[Side, tuple[Candidate, ...]] = field(default_factory=dict)
    open: dict[str, Candidate] = field(default_factory=dict)
    first_seen: FirstSeen = field(default_factory=FirstSeen)
    last_seen: float = 0.0

    def merge(self, other: Candidate, distrusted: Collection[int] = ()) -> bool:
        if self.item_id and other.item_id != self.item_id:
            raise ValueError(f"a contribution to {other.item_id} cannot be merged into item {self.item_id}")
        if other.is_open:
            return self._merge_open(other)
        changed, session, agent = self._settle(other), cached_hash(other.session), cached_hash(other.agent)
        if self.contributors.has_room(session, agent):
            said, form = cached_hash(other.said), 0
            contributor = Contributor(
                other.revision, other.side, agent, other.seen, said, form, other.goal, other.delayed, other.danger
            )
            changed |= self.contributors.add(session, contributor)
        if other.side != "withdrawn":
            changed |= self.first_seen.note(agent, other.came or other.seen) or other.seen > self.last_seen
            self.last_seen = max(other.seen, self.last_seen)
        # Most contributions to a well backed item come too late to be examples.
        return changed if self._outranked(other, distrusted) else self._add_example(other, distrusted) or changed

    def join(self, other: Self) -> None:
        for each in other.candidates:
            self.merge(each)
        self.contributors.merge(other.contributors)
        for agent, moment in other.first_seen.items():
            self.first_seen.note(agent, moment)
        self.last_seen = max(self.last_seen, other.last_seen)

    def of_tenant(self, tenant: str) -> Self:
        moved = self.from_json(self.to_json())
        moved.examples = {
            side: tuple([replace(each, tenant=tenant) for each in found]) for side, found in self.examples.items()
        }
        moved.open = {session: replace(each, tenant=tenant) for session, each in self.open.items()}
        return moved

    def _merge_open(self, other: Candidate) -> bool:
        settled, known = self.contributors.kept.get(cached_hash(other.session)), self.open.get(other.session)
        if settled is not None and settled.revision >= other.revision:
            return False
        if known is None or _precedes(other, known):
            found = sorted({**self.open, other.session: other}.items(), key=lambda each: cached_hash(each[0]))
            self.open = dict(found[:EXAMPLES])
        return self.open.get(other.session) is not known

    def _settle(self, other: Candidate) -> bool:
        known = self.open.get(other.session)
        return known is not None and known.revision <= other.revision and bool(self.open.pop(other.session))

    def _with_open(self) -> Self:
        state = self.from_json(self.to_json())
        state.open = {}
        for each in self.open.values():
            state.merge(replace(each, is_open=False))
        return state

    @property
    def size(self) -> int:
        return len(self.contributors)

    @property
    def sessions(self) -> set[int]:
        return {*self.contributors.kept, *(cached_hash(each.session) for each in self.candidates)}

    def discard(self, sessions: Collection[int]) -> bool:
        """Remove sessions (hashes) as if they had never been; return whether any was there."""
        counted = self.contributors.discard(sessions)
        kept = {
            side: tuple(each for each in found if cached_hash(each.session) not in sessions)
            for side, found in self.examples.items()
        }
        still_open = {session: each for session, each in self.open.items() if cached_hash(session) not in sessions}
        if not counted and kept == self.examples and still_open == self.open:
            return False
        self.open = still_open
        self.examples = {side: found for side, found in kept.items() if found}
        agents = {each.agent for each in self._counted}
        self.first_seen = FirstSeen(each for each in self.first_seen.items() if each[0] in agents)
        self.last_seen = max([each.seen for each in self._counted], default=0.0)
        return True

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        return {
            *(session for session, each in self.contributors.kept.items() if each.agent in agents),
            *(cached_hash(each.session) for each in self.candidates if cached_hash(each.agent) in agents),
        }

    def without(self, agents: Collection[int]) -> Self:
        gone = self.sessions_of(agents) if agents else ()
        if not gone:
            return self
        left = self.from_json(self.to_json())
        left.discard(gone)
        return left

    def _add_example(self, candidate: Candidate, distrusted: Collection[int]) -> bool:
        newest = {each.session: each for side in self.examples.values() for each in side}
        known = newest.get(candidate.session)
        if known is None or _precedes(candidate, known):
            newest[candidate.session] = candidate
        sides: dict[Side, list[Candidate]] = {}
        for each in newest.values():
            counted = self.contributors.kept.get(cached_hash(each.session))
            if counted is None or (counted.revision == each.revision and counted.side == each.side):
                sides.setdefault(each.side, []).append(each)
        before = self.examples
        self.examples = {side: _in_turn(found, distrusted)[: _most(found[0])] for side, found in sides.items()}
        return before != self.examples

    def _outranked(self, candidate: Candidate, distrusted: Collection[int]) -> bool:
        side = self.examples.get(candidate.side, ())
        if len(side) < _most(candidate) or _in_turn([*side, candidate], distrusted)[-1] is not candidate:
            return False
        return not any(each.session == candidate.session for side in self.examples.values() for each in side)

    @property
    def item_id(self) -> str:
        return next((each.item_id for each in self.candidates), "")

    @property
    def candidates(self) -> Iterator[Candidate]:
        return (each for side in (*self.examples.values(), self.open.values()) for each in side)

    def to_item(self) -> MemoryItem | None:
        """The content that most agents contributed, or None: too few back it, or contradictions outweigh it."""
        if self.open:
            return self._with_open().to_item()
        if not self.is_item:
            return None
        counted = self._counted
        found = votes([(each.way, each) for each in counted], HALF_LIFE_SECONDS)
        ways = [(cached_hash(each.said), each) for each in self.examples["success"]]
        most = min((way for way, _ in ways), key=lambda way: (*(-each for each in found.get(way, (0, 0.0))), way))
        shown = [each for way, each in ways if way == most]
        backed = [each for each in counted if each.way == most and each.side == "success"]
        against = [each for each in counted if each.side == "failure"]
        agents, goals = {each.agent for each in backed}, {each.goal for each in backed}
        weights, even = (weigh([*backed, *against], half_life) for half_life in (HALF_LIFE_SECONDS, math.inf))
        if len(agents) < _least_agents(shown[0]) or len(goals) < shown[0].least_goals:
            return None
        if weights["failure"] > weights["success"]:
            return None
        scales = self.contributors.scales
        support = round(fsum([scales[each.agent] for each in backed]))
        patterns = [each.pattern for each in shown]
        best = way(shown[0]) if shown[0].calls else shown[0]
        return MemoryItem(
            **{name: getattr(best, name) for name in _SHOWN},
            id=best.item_id,
            pattern=min(patterns, key=lambda each: (-patterns.count(each), each or "")),
            danger=any(each.danger for each in backed) or any(each.danger for each in shown),
            support=support,
            agents=len(agents),
            goals=len(goals),
            delayed=len({each.agent for each in backed if each.delayed}),
            sessions=tuple(sorted(each.session for each in shown)),
            first_seen=self.first_seen.moment,
            last_seen=self.last_seen,
            said_by=tuple(sorted({cached_hash(each.agent) for each in shown})),
            against=round(support * even["failure"] / even["success"]),
        )

    @property
    def is_item(self) -> bool:
        if self.open:
            return self._with_open().is_item
        successes = self.examples.get("success")
        if not successes:
            return False
        agents = {each.agent for each in self._counted if each.side == "success"}
        return len(agents) >= _least_agents(successes[0])

    @property
    def _counted(self) -> list[Contributor]:
        return [each for each in self.contributors.kept.values() if each.side != "withdrawn"]

    def to_json(self) -> bytes:
        """Equal states give equal bytes."""
        examples, still_open = dict(sorted(self.examples.items())), list(self.open.values())
        first_seen = sorted(self.first_seen.items())
        return encode(_Kept(self.contributors.sorted(), examples, self.last_seen, first_seen, still_open))

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        kept = _read_kept(value)
        still_open = {each.session: each for each in kept.open}
        return cls(
            _Contributors(kept.contributors), kept.examples, still_open, FirstSeen(kept.first_seen), kept.last_seen
        )


class _Kept(msgspec.Struct, gc=False):
    contributors: list[tuple[int, Contributor]]
    examples: dict[Side, tuple[Candidate, ...]]
    last_seen: float
    first_seen: list[tuple[int, float]] = []
    open: list[Candidate] = []


_read_kept = msgspec.json.Decoder(_Kept).decode


def _least_agents(candidate: Candidate) -> int:
    return QUORUM_AGENTS if candidate.calls else 1


def _most(candidate: Candidate) -> int:
    return _STRATEGY_EXAMPLES if candidate.calls else EXAMPLES


def _in_turn(side: Sequence[Candidate], distrusted: Collection[int]) -> tuple[Candidate, ...]:
    """One example of every agent before a second one of any."""
    turns = Counter[str]()
    order: list[tuple[bool, int, int, int, str]] = []
    by_session = {each.session: each for each in side}
    for hashed, session in sorted([(cached_hash(session), session) for session in by_session]):
        agent, item_id = by_session[session].agent, by_session[session].item_id
        order.append(
            (cached_hash(agent) in distrusted, turns[agent], cached_hash(f"{item_id}/{agent}"), hashed, session)
        )
        turns[agent] += 1
    return tuple([by_session[session] for *_, session in sorted(order)])


def _precedes(new: Candidate, known: Candidate) -> bool:
    first, second = _precedence(new), _precedence(known)
    # JSON is costly, and a tie is nearly always the same contribution again.
    return first < second or (first == second and new.to_json() < known.to_json())


def _precedence(candidate: Candidate) -> tuple[object, ...]:
    revision, corrected = candidate.revision
    return -revision, -corrected, _PRECEDENCE[candidate.side]
