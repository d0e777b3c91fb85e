"""The mergeable state behind one memory item.

Contributions arrive in any order, more than once, and through several workers over time. So the state is a join-semilattice:
merging commutes, associates and repeats without effect, and the item that comes out depends on the *set* of contributions
alone. A session that is judged again (a correction came) replaces what it contributed before. The state stays small: it keeps
a bounded sample of sessions for the counts (bottom-k by hash, as in `fleetlore.sample`) and a few best examples of each side.
What is exact: everything up to `SAMPLED_SESSIONS` sessions, but for a correction of a session that was one of more than
`EXAMPLES` on its side, which leaves a gap among the examples until the log is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec

from fleetlore.lore import MemoryItem
from fleetlore.sample import stable_hash
from fleetlore.trajectory import encode
from models.candidate import Candidate, Side
from models.contrast import contrast

SAMPLED_SESSIONS = 64
EXAMPLES = 3

_HASHES = 2**52  # of fleetlore.sample.stable_hash


class Contributor(NamedTuple):
    """What the newest verdict on one session says; the greater one of two counts."""

    revision: tuple[int, float]
    side: Side
    agent: int
    seen: float


@dataclass(slots=True)
class ItemState:
    """All that is known about one memory item. Single writer per item id.

    Attributes:
        contributors: by hash of the session; at most `SAMPLED_SESSIONS`, those with the smallest hashes.
        examples: of each side at most `EXAMPLES`, best first, one a session.
        last_seen: event time of the newest contribution, in seconds since the Unix epoch.
    """

    contributors: dict[int, Contributor] = field(default_factory=dict)
    examples: dict[Side, tuple[Candidate, ...]] = field(default_factory=dict)
    last_seen: float = 0.0

    @classmethod
    def empty(cls) -> ItemState:
        return cls()

    def merge(self, other: ItemState | Candidate) -> bool:
        """Merge a contribution or another state of the same item in; say whether anything changed.

        Raises:
            ValueError: `other` belongs to another item.
        """
        if self.item_id and other.item_id and other.item_id != self.item_id:
            raise ValueError(f"a contribution to {other.item_id} cannot be merged into item {self.item_id}")
        if isinstance(other, Candidate):
            contributor = Contributor(other.revision, other.side, _hash(other.agent), other.seen)
            changed = self._count({_hash(other.session): contributor})
            # Most contributions to an item that many sessions back come too late to be among its examples.
            examples = () if self._outranked(other) else (other,)
            return self._show(examples, other.seen) or changed
        changed = self._count(other.contributors)
        return self._show([each for side in other.examples.values() for each in side], other.last_seen) or changed

    def _count(self, contributors: dict[int, Contributor]) -> bool:
        changed = False
        for session, contributor in contributors.items():
            known = self.contributors.get(session)
            if known is None and len(self.contributors) >= SAMPLED_SESSIONS:
                largest = max(self.contributors)
                if session > largest:
                    continue
                del self.contributors[largest]
            if known is None or contributor > known:
                self.contributors[session] = contributor
                changed = True
        return changed

    def _show(self, examples: Sequence[Candidate], last_seen: float) -> bool:
        newer = last_seen > self.last_seen
        self.last_seen = max(self.last_seen, last_seen)
        if not examples:
            return newer
        newest = {each.session: each for side in self.examples.values() for each in side}
        for each in examples:
            known = newest.get(each.session)
            if known is None or _precedes(each, known):
                newest[each.session] = each
        shown: dict[Side, list[Candidate]] = {}
        for each in sorted(newest.values(), key=_goodness):
            counted = self.contributors.get(_hash(each.session))
            if counted is None or (counted.revision == each.revision and counted.side == each.side):
                shown.setdefault(each.side, []).append(each)
        before = self.examples
        self.examples = {side: tuple(candidates[:EXAMPLES]) for side, candidates in shown.items()}
        return newer or before != self.examples

    def _outranked(self, candidate: Candidate) -> bool:
        """It changes no example: better ones fill its side, and its session is not shown, so that none is to be replaced."""
        side = self.examples.get(candidate.side, ())
        if len(side) < EXAMPLES or _goodness(candidate) < _goodness(side[-1]):
            return False
        return not any(each.session == candidate.session for side in self.examples.values() for each in side)

    @property
    def item_id(self) -> str:
        """Id of the item; empty before the first contribution."""
        return next((side[0].item_id for side in self.examples.values()), "")

    def to_item(self) -> MemoryItem | None:
        """The item as agents read it.

        None as long as a strategy has no failed or no succeeded session, and where corrections have left a lesson without a
        failed one: an item that was there before is to be withdrawn then.
        """
        backing = self._backing
        if not backing:
            return None
        best = backing[0][0]
        sides = {side[0].side for side in backing}
        counted = [each for each in self.contributors.values() if each.side in sides]
        return MemoryItem(
            id=best.item_id,
            tenant=best.tenant,
            kind=best.kind,
            title=best.title,
            description=" ".join(side[0].description for side in backing),
            content=contrast(best, backing[1][0]) if best.kind == "strategy" else best.content,
            when=best.when,
            tool=best.tool,
            pattern=best.pattern,
            call=best.call,
            task=best.task,
            remedy=best.remedy,
            support=round(len(counted) * self._scale),
            agents=len({each.agent for each in counted}),
            sessions=tuple(sorted(example.session for side in backing for example in side)),
            last_seen=self.last_seen,
            version=best.version,
        )

    @property
    def is_item(self) -> bool:
        """Whether `to_item` gives one, without making it."""
        return bool(self._backing)

    @property
    def _backing(self) -> tuple[tuple[Candidate, ...], ...]:
        """The examples of each side that the item is made of; none where a side is missing."""
        success, failure = self.examples.get("success"), self.examples.get("failure")
        if success and failure and success[0].kind == "strategy":
            return success, failure
        if success and success[0].kind == "recovery":
            return (success,)
        if failure and failure[0].kind == "lesson":
            return (failure,)
        return ()

    @property
    def _scale(self) -> float:
        """How many sessions one kept session stands for: 1 while all are kept."""
        if len(self.contributors) < SAMPLED_SESSIONS:
            return 1.0
        return (SAMPLED_SESSIONS - 1) / (max(self.contributors) / _HASHES) / SAMPLED_SESSIONS

    def to_json(self) -> bytes:
        """Equal states give equal bytes."""
        return encode(_Kept(sorted(self.contributors.items()), dict(sorted(self.examples.items())), self.last_seen))

    @classmethod
    def from_json(cls, value: bytes) -> ItemState:
        kept = _read_kept(value)
        return cls(dict(kept.contributors), kept.examples, kept.last_seen)


class _Kept(msgspec.Struct, gc=False):
    """An `ItemState` as it is stored."""

    contributors: list[tuple[int, Contributor]]
    examples: dict[Side, tuple[Candidate, ...]]
    last_seen: float


_read_kept = msgspec.json.Decoder(_Kept).decode

# Agents and the sessions of the examples are met again and again; a hash costs 1 µs and there were five a contribution.
_hash = lru_cache(maxsize=16_384)(stable_hash)


def _goodness(candidate: Candidate) -> tuple[tuple[int, ...], str]:
    """Lower is the better example."""
    return candidate.rank, candidate.session


def _precedes(new: Candidate, known: Candidate) -> bool:
    """Which of two contributions of one session counts; a total order, so that two different ones never tie."""
    first, second = _precedence(new), _precedence(known)
    # Written out as JSON only on a tie: that is the costly part, and nearly always the same contribution come twice.
    return first < second or (first == second and new.to_json() < known.to_json())


def _precedence(candidate: Candidate) -> tuple[object, ...]:
    events, corrected = candidate.revision
    return -events, -corrected, candidate.side == "failure", candidate.rank
