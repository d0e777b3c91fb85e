"""Merge contributions into the state behind one memory item.

Contributions arrive in any order, more than once, and through several workers. So the state is a join-semilattice:
merging commutes, associates and is idempotent, and the item depends on the *set* of contributions alone. A session that
is judged again replaces its earlier contribution. The state stays small: a bounded sample of sessions for the counts
(`models.memory.bottom_k`), a few examples of each side, and a sample of the sessions that were shown the item or had
it withheld (`models.memory.utility`). It is exact up to `SAMPLED_SESSIONS` sessions, except that a corrected session
may leave a gap among the examples until the log is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import fsum

import msgspec

from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import encode
from models.memory.bottom_k import LatestSample
from models.memory.candidate import Candidate, Side
from models.memory.consolidation import Contributor, only_group, votes, weigh
from models.memory.contrast import contrast, shared_by, shared_names, without_literals
from models.memory.utility import Evidence, Row, Trials

SAMPLED_SESSIONS = 64
# Recoveries and lessons keep the best by rank. Strategies keep a draw by hash, since only other sessions can tell which
# is right: the shortest way that seemed to work was often judged wrongly.
EXAMPLES = 3
STRATEGY_EXAMPLES: dict[Side, int] = {"success": 4, "failure": 4, "withdrawn": 3}
# Of a place: agents whose newer word stands against all older ones.
SINCE_AGENTS = 2
# Where what several share is kept.
ASPECT_EXAMPLES = 6
# Of two sides of one session and revision the first counts, as where `Contributor`s are compared.
_PRECEDENCE: dict[Side, int] = {"withdrawn": 0, "success": 1, "failure": 2}


@dataclass(slots=True)
class ItemState:
    """All that is known about one memory item. Single writer per item id.

    Attributes:
        contributors: of at most `SAMPLED_SESSIONS` sessions.
        examples: a few of each side, best first, one a session.
        trials: sessions that were shown the item or had it withheld.
        first_seen, last_seen: event times of the oldest and the newest contribution, in seconds since the Unix epoch.
    """

    contributors: LatestSample[Contributor] = field(default_factory=lambda: _contributors())
    examples: dict[Side, tuple[Candidate, ...]] = field(default_factory=dict)
    trials: Trials = field(default_factory=Trials)
    first_seen: float = math.inf
    last_seen: float = 0.0

    @classmethod
    def empty(cls) -> ItemState:
        return cls()

    def merge(self, other: ItemState | Candidate | Evidence, distrusted: Collection[int] = ()) -> bool:
        """Merge a contribution, evidence or another state of the same item in; say whether anything changed.

        Args:
            distrusted: agents (hashes of their names) whose examples stand behind those of all others.

        Raises:
            ValueError: `other` belongs to another item.
        """
        if self.item_id and other.item_id and other.item_id != self.item_id:
            raise ValueError(f"a contribution to {other.item_id} cannot be merged into item {self.item_id}")
        if isinstance(other, Evidence):
            return self.trials.add(other)
        if isinstance(other, Candidate):
            contributor = Contributor(
                other.revision,
                other.side,
                _hash(other.agent),
                other.seen,
                other.way,
                other.goal,
                other.delayed,
                _hash(other.group) if other.group else 0,
            )
            changed = self.contributors.add(_hash(other.session), contributor)
            # Most contributions to a well backed item come too late to be among its examples.
            examples = () if self._outranked(other, distrusted) else (other,)
            return self._show(examples, other.seen, other.seen, distrusted) or changed
        changed = any([self.contributors.merge(other.contributors), self.trials.merge(other.trials)])
        shown = [each for side in other.examples.values() for each in side]
        return self._show(shown, other.first_seen, other.last_seen, distrusted) or changed

    @property
    def sessions(self) -> set[int]:
        """Hashes of all sessions that it knows."""
        shown = [_hash(each.session) for side in self.examples.values() for each in side]
        return {*self.contributors.kept, *self.trials.shown.kept, *self.trials.withheld.kept, *shown}

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions (hashes of their ids) out as if they had never been; say whether any was there.

        An example that is gone leaves its place to the next contribution that is merged in again.
        """
        counted = [self.contributors.discard(sessions), self.trials.discard(sessions)]
        kept = {
            side: tuple(each for each in found if _hash(each.session) not in sessions)
            for side, found in self.examples.items()
        }
        if not any(counted) and kept == self.examples:
            return False
        self.examples = {side: found for side, found in kept.items() if found}
        seen = [each.seen for each in self._counted]
        self.first_seen, self.last_seen = min(seen, default=math.inf), max(seen, default=0.0)
        return True

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        """Hashes of the sessions of some agents (hashes of their names) that contributed, or tried it."""
        shown = [each for side in self.examples.values() for each in side]
        return {
            *self.trials.sessions_of(agents),
            *(session for session, each in self.contributors.kept.items() if each.agent in agents),
            *(_hash(each.session) for each in shown if _hash(each.agent) in agents),
        }

    def without(self, agents: Collection[int]) -> ItemState:
        """What is left where some agents have said nothing: this state itself where they have not."""
        gone = self.sessions_of(agents) if agents else ()
        if not gone:
            return self
        left = ItemState.from_json(self.to_json())
        left.discard(gone)
        return left

    def _show(
        self, examples: Sequence[Candidate], first_seen: float, last_seen: float, distrusted: Collection[int]
    ) -> bool:
        seen = min(first_seen, self.first_seen), max(last_seen, self.last_seen)
        widened = seen != (self.first_seen, self.last_seen)
        self.first_seen, self.last_seen = seen
        if not examples:
            return widened
        newest = {each.session: each for side in self.examples.values() for each in side}
        for each in examples:
            known = newest.get(each.session)
            if known is None or _precedes(each, known):
                newest[each.session] = each
        shown: dict[Side, list[Candidate]] = {}
        for each in sorted(newest.values(), key=partial(_goodness, distrusted=distrusted)):
            counted = self.contributors.kept.get(_hash(each.session))
            if counted is None or (counted.revision == each.revision and counted.side == each.side):
                shown.setdefault(each.side, []).append(each)
        before = self.examples
        self.examples = {side: tuple(found[: _most(found[0])]) for side, found in shown.items()}
        return widened or before != self.examples

    def _outranked(self, candidate: Candidate, distrusted: Collection[int]) -> bool:
        """Whether it changes no example: better ones fill its side, and its session is not among them."""
        side = self.examples.get(candidate.side, ())
        worst = max([_goodness(each, distrusted) for each in (side if distrusted else side[-1:])], default=None)
        if len(side) < _most(candidate) or worst is None or _goodness(candidate, distrusted) < worst:
            return False
        return not any(each.session == candidate.session for side in self.examples.values() for each in side)

    @property
    def item_id(self) -> str:
        """Id of the item; empty before the first contribution."""
        return next((side[0].item_id for side in self.examples.values()), "")

    def to_item(self, half_life_seconds: float = HALF_LIFE_SECONDS) -> MemoryItem | None:
        """The item as agents read it.

        None if a strategy lacks a side or attempts have no contrast, if no session backs it any more, or if
        contradictions outweigh it and taught nothing else. An item that existed is then to be withdrawn.
        """
        backing = self._backing
        if not backing:
            return None
        best, superseded_by, told = backing[0][0], None, backing
        if best.aspect and len(backing) == 1:
            with_shared = shared_by(backing[0])
            if with_shared is None:
                return None
            best = with_shared
        sides = {side[0].side for side in backing}
        counted = self._counted
        backed = [each for each in counted if each.side in sides]
        scales, even = self.contributors.scales, weigh(counted, math.inf)
        support = round(fsum([scales[each.agent] for each in backed]))
        for_it = fsum(even[side] for side in sides)
        content = best.content
        if len(backing) == 2:
            # What differs from session to session is not the task's, but somebody's.
            known = shared_names([*backing[0], *backing[1]])
            if known is not None:
                backing = tuple([tuple([without_literals(each, known) for each in side]) for side in backing])
            best, worst = self._judged_best(backing, half_life_seconds)
            content = contrast(best, worst, *backing)
            backing = ((best,), (worst,))
        else:
            other: Side = "failure" if best.side == "success" else "success"
            weights = weigh(counted, half_life_seconds)
            if best.kind != "place" and weights[other] > weights[best.side]:
                superseded_by = next((each.instead for each in self.examples.get(other, ()) if each.instead), None)
                if superseded_by is None:
                    return None
        uplift = self.trials.uplift
        return MemoryItem(
            id=best.item_id,
            tenant=best.tenant,
            # A remedy that mostly did not help is a lesson.
            kind="lesson" if best.cause is not None and best.side == "failure" else best.kind,
            title=best.title,
            description=" ".join(side[0].description for side in backing),
            content=content,
            when=best.when,
            tool=best.tool,
            pattern=best.pattern,
            call=best.call,
            cause=best.cause,
            task=best.task,
            place=best.place,
            group=_told_to(backed, backing),
            remedy=best.remedy,
            support=support,
            agents=len({each.agent for each in backed}),
            goals=1 if best.task else len({each.goal for each in backed}),
            delayed=len({each.agent for each in backed if each.delayed}),
            sessions=tuple(sorted(example.session for side in backing for example in side)),
            first_seen=self.first_seen if self.first_seen < math.inf else 0.0,  # of a row of an earlier release
            last_seen=self.last_seen,
            version=best.version,
            near=tuple(sorted({each.near for side in backing for each in side if each.near})),
            said_by=tuple(sorted({_hash(each.agent) for side in told for each in side})),
            against=round(support * (fsum(even.values()) - for_it) / for_it),
            shown=self.trials.shown_sessions,
            superseded_by=superseded_by,
            uplift=uplift and uplift.estimate,
            uplift_low=uplift and uplift.low,
            uplift_high=uplift and uplift.high,
        )

    @property
    def is_item(self) -> bool:
        """Whether `to_item` may give one, without making it."""
        return bool(self._backing)

    @property
    def _backing(self) -> tuple[tuple[Candidate, ...], ...]:
        """The examples of each side that the item is made of; none if a side or a goal is missing."""
        found = self._sides
        if found and (least := found[0][0].least_goals) > 1:
            side = found[0][0].side
            if len({each.goal for each in self._counted if each.side == side}) < least:
                return ()
        return found

    @property
    def _sides(self) -> tuple[tuple[Candidate, ...], ...]:
        success, failure = self.examples.get("success"), self.examples.get("failure")
        if (side := success or failure) and side[0].kind == "place":
            return (side,) if success is None or failure is None or self._holds else (failure,)
        if success and success[0].kind == "strategy":
            # A strategy without calls says in its own words what to do and needs no contrast.
            return (success,) if not success[0].calls else (success, failure) if failure else ()
        if failure and failure[0].cause is not None and (not success or self._mostly_ineffective):
            # A preparation that does not help is worth knowing; a value that does not is not.
            return (failure,) if "change" not in (failure[0].remedy or {}) else ()
        if success and success[0].kind == "recovery":
            return (success,)
        if failure and failure[0].kind == "lesson":
            return (failure,)
        return ()

    @property
    def _holds(self) -> bool:
        """Whether what is said of a place holds: by agents, and what two of them met since outweighs all before."""
        agents: dict[Side, dict[int, float]] = {"success": {}, "failure": {}}
        for each in self._counted:
            known = agents[each.side]
            known[each.agent] = max(known.get(each.agent, 0.0), each.seen)
        for_it, against = agents["success"].values(), agents["failure"].values()
        if sum(seen > max(against, default=0.0) for seen in for_it) >= SINCE_AGENTS:
            return True
        if sum(seen > max(for_it, default=0.0) for seen in against) >= SINCE_AGENTS:
            return False
        return len(for_it) >= len(against)

    @property
    def _mostly_ineffective(self) -> bool:
        weights = weigh(self._counted, math.inf)
        return weights["failure"] > weights["success"]

    @property
    def _counted(self) -> list[Contributor]:
        """All but the withdrawn contributors."""
        return [each for each in self.contributors.kept.values() if each.side != "withdrawn"]

    def _judged_best(
        self, sides: Sequence[Sequence[Candidate]], half_life_seconds: float
    ) -> tuple[Candidate, Candidate]:
        """Of a strategy: the way with the most support, and the failed one with the least."""
        found = votes(self._counted, half_life_seconds)
        success, failure = sides
        return (
            min(success, key=lambda each: (-found.get(each.way, 0.0), each.rank, each.session)),
            min(failure, key=lambda each: (found.get(each.way, 0.0), each.rank, each.session)),
        )

    def to_json(self) -> bytes:
        """Equal states give equal bytes."""
        shown, withheld = self.trials.to_rows()
        return encode(
            _Kept(
                self.contributors.sorted(),
                dict(sorted(self.examples.items())),
                self.last_seen,
                shown,
                withheld,
                None if self.first_seen == math.inf else self.first_seen,
            )
        )

    @classmethod
    def from_json(cls, value: bytes) -> ItemState:
        kept = _read_kept(value)
        return cls(
            _contributors(kept.contributors),
            kept.examples,
            Trials.from_rows(kept.shown, kept.withheld),
            math.inf if kept.first_seen is None else kept.first_seen,
            kept.last_seen,
        )


class _Kept(msgspec.Struct, gc=False):
    """An `ItemState` as it is stored."""

    contributors: list[tuple[int, Contributor]]
    examples: dict[Side, tuple[Candidate, ...]]
    last_seen: float
    shown: list[Row] = []
    withheld: list[Row] = []
    first_seen: float | None = None


_read_kept = msgspec.json.Decoder(_Kept).decode


def _contributors(kept: Iterable[tuple[int, Contributor]] = ()) -> LatestSample[Contributor]:
    return LatestSample(SAMPLED_SESSIONS, lambda agent: Contributor((0, 0.0), "withdrawn", agent, 0.0), kept)


# Cached, since agents and the sessions of the examples repeat: five hashes a contribution.
_hash = lru_cache(maxsize=16_384)(stable_hash)


def _told_to(backed: Iterable[Contributor], backing: Iterable[Iterable[Candidate]]) -> str:
    """The name of the group whose agents alone are told of an item; empty for all of the tenant."""
    group = only_group([(each.agent, each.group) for each in backed])
    return min((each.group for side in backing for each in side if group and _hash(each.group) == group), default="")


def _most(candidate: Candidate) -> int:
    """How many examples of its side are kept."""
    if candidate.aspect:
        return ASPECT_EXAMPLES
    return STRATEGY_EXAMPLES[candidate.side] if candidate.kind == "strategy" else EXAMPLES


def _goodness(candidate: Candidate, distrusted: Collection[int]) -> tuple[bool, tuple[int, ...], str]:
    """Lower is the better example."""
    rank = (_hash(candidate.session),) if candidate.kind == "strategy" else candidate.rank
    return bool(distrusted) and _hash(candidate.agent) in distrusted, rank, candidate.session


def _precedes(new: Candidate, known: Candidate) -> bool:
    """Which of two contributions of one session counts: a total order without ties."""
    first, second = _precedence(new), _precedence(known)
    # JSON only on a tie: it is costly, and a tie is nearly always the same contribution again.
    return first < second or (first == second and new.to_json() < known.to_json())


def _precedence(candidate: Candidate) -> tuple[object, ...]:
    events, corrected = candidate.revision
    return -events, -corrected, _PRECEDENCE[candidate.side], candidate.rank
