"""Predict how likely a call fails, with which kind of failure, and for which names.

A version is a linear model over hashed features, a table of kinds of failure, and names with their record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext, Ids, hash_of, hashes_of
from fleetlore.calls.document import CALL_BITS, KIND_BITS, Document, Named, OldValue, Threshold, Weights, old_value_key
from fleetlore.calls.places import PlaceNames, Places

__all__ = [
    "CallModel", "Expected", "Features", "KindScores", "Outlook", "call_cells", "failure_chance", "features",
    "kind_cells",
]  # fmt: skip

_MAX_NAMES = 14
_FIRST_WORDS, _LAST_WORDS, LINE = 6, 4, 200
_GOAL_WORDS, _GOAL_NAMES = 16, 10

_ODD = np.uint32(0x9E3779B1)
_ODD2 = np.uint32(0x85EBCA6B)
_NEXT = np.uint32(0x27D4EB2F)


class Features(NamedTuple):
    """ids: uint32 (n,); values: float32 (n,). The first `of_kind` also tell kinds of failure apart."""

    ids: Ids
    values: npt.NDArray[np.float32]
    of_kind: int


def mixed(ids: Ids, salt: Ids | np.uint32) -> Ids:
    """Hash the hashes again with a salt (the finaliser of MurmurHash3)."""
    ids = (ids ^ salt) * _ODD
    ids ^= ids >> np.uint32(15)
    ids *= _ODD2
    ids ^= ids >> np.uint32(13)
    return ids


_Group = tuple[Ids, float]


def features(call: MadeCall, context: CallContext, known: PlaceNames | None = None) -> Features:
    tokens = hashes_of(call.tokens or [""])
    names = hashes_of(call.names[:_MAX_NAMES])
    unique = np.array(list(dict.fromkeys(tokens.tolist())), np.uint32)
    last = np.uint32(hash_of(context.last))
    groups: list[_Group] = [
        (unique, 2.0),
        (np.unique(tokens[:-1] * np.uint32(3) + tokens[1:] * _NEXT), 2.0),
        (context.last_words + np.uint32(context.last[0] == "E"), 1.0),
        (_overlap(call.names, context), 1.0),
        (_course(call, context), 1.5),
        (_ends(call), 1.5),
        (hashes_of(context.objects.marks(call.json)), 2.0),
    ]
    of_kind = sum(len(ids) for ids, _ in groups)
    groups += [
        (_pairs(names), 1.0),
        (context.goal, 0.7),
        ((context.goal[:_GOAL_WORDS, None] * np.uint32(5) + names[None, :_GOAL_NAMES] * _ODD2).ravel(), 1.0),
        (unique[:80] ^ last, 1.0),
        (_unset(call, context), 1.0),
    ]
    if known is not None and known.sessions:
        groups.append((_known(call.names, known), 0.8 * 5**0.5))
    lengths = [len(ids) for ids, _ in groups]
    salt = hash_of("T" + call.tool)
    salts = np.array([(salt + 0x61C88647 * number) & 0xFFFFFFFF for number in range(len(groups))], np.uint32)
    scales = np.array([weight / (len(ids) or 1) ** 0.5 for ids, weight in groups], np.float32)
    ids = mixed(np.concatenate([ids for ids, _ in groups]), np.repeat(salts, lengths))
    return Features(ids, np.repeat(scales, lengths), of_kind)


def _pairs(names: Ids) -> Ids:
    left, right = _TRIANGLES[len(names)]
    first, second = names[left], names[right]
    return (first ^ second) + first * second


_TRIANGLES = [np.triu_indices(size, 1) for size in range(_MAX_NAMES + 1)]


def _overlap(names: list[str], context: CallContext) -> Ids:
    met = dict.fromkeys(names, 4)
    for where, known in ((3, context.goal_words), (2, context.seen), (1, context.worked), (0, context.failed)):
        met |= dict.fromkeys(known.intersection(names), where)
    counts = Counter(met[name] for name in names)
    found = [f"O{met[name]} {name}" for name in names]
    return hashes_of(found + [f"C{where} {min(counts[where], 4)}" for where in range(5)])


def _ends(call: MadeCall) -> Ids:
    head, tail = call.text[:LINE].partition("\n")[0], call.text[-LINE:].rpartition("\n")[2]
    return hashes_of(
        [
            *(f"first {token}" for token in call.tokens[:_FIRST_WORDS]),
            *(f"last {token}" for token in call.tokens[-_LAST_WORDS:]),
            f"line {head.strip()}",
            f"line {tail.strip()}",
        ]
    )


def _unset(call: MadeCall, context: CallContext) -> Ids:
    tokens = [token.lower() for token in call.tokens]
    set_here = {name for name, after in pairwise(tokens) if after == "="}
    set_here |= {name for before, name in pairwise(tokens) if before in _SETS}
    unset = [name for name in call.names if name not in set_here and name not in context.worked]
    return hashes_of([f"unset {min(len(unset), 8)}", *(f"unset {name}" for name in unset[:30])])


_SETS = frozenset(["import", "as", "for", "def", "class", "function", "let", "const", "var"])


def _course(call: MadeCall, context: CallContext) -> Ids:
    tried = context.tried.get(call.trajectory_key)
    again = "n" if tried is None else "f" if tried else "w"
    failed = sum(name in context.failed for name in call.names)
    met = context.goal_words, context.worked, context.seen, context.failed
    new = sum(not any(name in names for names in met) for name in call.names)
    last, run, calls = context.last, min(context.run, 4), context.calls
    return hashes_of(
        [
            f"L{last}",
            f"n{min(calls, 4)}",
            f"f{min(context.failures, 4)}",
            f"r{run}",
            f"rep{again}",
            f"len{min(12, int(log2(len(call.text) + 1)))}",
            f"L{last}|rep{again}",
            f"L{last}|bad{min(failed, 2)}",
            f"nl{min(6, call.text.count(chr(10)))}",
            f"un{min(new, 4)}|n{min(calls, 2)}",
            f"r{run}|rep{again}",
        ]
    )


_SESSIONS = (5, 20, 60)


def _known(names: list[str], known: PlaceNames) -> Ids:
    bad, good, both, unknown = known.counts(names)
    sure = f"k{sum(known.sessions >= least for least in _SESSIONS)}"
    return hashes_of(
        [
            f"MB{min(bad, 3)}{sure}",
            f"MG{min(good, 5)}{sure}",
            f"MU{min(unknown, 4)}{sure}",
            f"MBU{min(bad, 1)}{min(unknown, 2)}{sure}",
            f"MX{min(both, 3)}{sure}",
        ]
    )


LEAST_CALLS = 20
# Jeffreys' estimate of the failure rate from which a name is named.
_NAMED_RATE = 0.5
# The same without the agent whose calls held the name most often and did not fail so: then the call is warned of.
_RATE_OF_OTHERS = 0.7
# Probability of one or two kinds of failure from which they are given: four in five came true.
_SURE_KIND = 0.9
_SURE_PAIR = 0.7
_CALL_MASK = np.uint32(2**CALL_BITS - 1)
_KIND_MASK = np.uint32(2**KIND_BITS - 1)
_KIND = np.uint32(0x85EBCA6B)
_KIND_SALT = np.uint32(7)


class Outlook(NamedTuple):
    fails: float
    threshold: Threshold | None
    is_blamed: bool = False

    @property
    def warned(self) -> bool:
        return self.threshold is not None and (self.is_blamed or self.fails >= self.threshold.least)


@dataclass(frozen=True, slots=True)
class Expected:
    """The likely failure of a call.

    Attributes:
        kind: the error without its names, or "" if none is likely.
        names: those in the call that the error would concern.
        held: number of sessions with these names in a call.
        failed: number of those that failed like this.
        agents: number that met this kind of failure.
        other: the next likely failure, if this one is not sure.
        tool, program: of this session's own failure.
    """

    kind: str
    names: tuple[str, ...] = ()
    failed: int = 0
    held: int = 0
    agents: int = 0
    other: Expected | None = None
    tool: str = ""
    program: str = ""


class CallModel:
    """One version. `until`: broker time of the newest learned session. `look_ups`: by tool and kind of failure."""

    def __init__(self, document: Document) -> None:
        self._weights = document.calls.restored(CALL_BITS)
        self._kinds = KindScores(document.kinds.restored(KIND_BITS), document.kind_counts)
        self._kind_texts = document.kind_texts
        self._kind_agents = {(kind.tool, kind.text): kind.agents for kind in document.kind_texts}
        self._bias = document.bias
        self.until = document.until
        self._tools = document.tools
        self._thresholds = {(each.tool, each.state): each for each in document.thresholds}
        self._named: defaultdict[tuple[str, str], list[Named]] = defaultdict(list)
        for named in document.named:
            if named.names:
                self._named[named.tool, named.names[0]].append(named)
        self.look_ups = {(each.tool, each.kind): each for each in document.look_ups}
        self._old_values = {each.key: each for each in document.old_values}
        self.places = Places({place: PlaceNames(*astuple(known)) for place, known in document.places.items()})

    @classmethod
    def from_bytes(cls, data: bytes) -> CallModel:
        """Raises ValueError: it is no version of this release."""
        return cls(Document.from_bytes(data))

    def knows(self, tool: str) -> bool:
        return self._tools.get(tool, 0) >= LEAST_CALLS

    def old_value(self, tool: str, parts: Iterable[str]) -> OldValue | None:
        """Return the record of the part that worked least since, or None if any is unknown."""
        found = [self._old_values.get(old_value_key(tool, part)) for part in parts]
        known = [each for each in found if each is not None]
        return min(known, key=lambda each: each.works, default=None) if len(known) == len(found) else None

    def outlook(self, call: MadeCall, context: CallContext, place: str | None = None) -> Outlook | None:
        if not self.knows(call.tool):
            return None
        found = features(call, context, self.places.get(place) if place is not None else None)
        threshold = self._thresholds.get((call.tool, context.state))
        return Outlook(failure_chance(self._weights, self._bias, found), threshold, self._is_blamed(call, place))

    def expected(
        self, call: MadeCall, context: CallContext, place: str | None = None, own: Iterable[Expected] = ()
    ) -> Expected:
        """`own`: this session's failures with names, the newest last."""
        held = frozenset(call.names) - call.bound
        for mine in reversed(list(own)):
            if mine.names and mine.tool == call.tool and held.issuperset(mine.names) and _runs(call, mine):
                return mine
        chances = self._kinds.chances(features(call, context))
        of_tool = {
            kind.text: float(chance)
            for kind, chance in zip(self._kind_texts, chances, strict=True)
            if kind.tool == call.tool
        }
        likely = sorted(of_tool, key=lambda kind: -of_tool[kind])[:2]
        best, score = None, 0.0
        # A name that is missing elsewhere may exist at an unknown place.
        somewhere_new = place is not None and place not in self.places
        for named in () if somewhere_new else self._held(call, held):
            rate = self._rate(named, place)
            worth = rate * (0.02 + of_tool.get(named.kind, 0.01))
            if rate >= _NAMED_RATE and worth > score:
                best, score = named, worth
        if best is not None and (not likely or score > 0.125 * of_tool[likely[0]]):
            return Expected(best.kind, best.names, best.failed, best.held, best.agents)
        if likely and of_tool[likely[0]] >= _SURE_KIND:
            del likely[1:]
        elif sum(of_tool[kind] for kind in likely) < _SURE_PAIR:
            return Expected("")
        first, *others = [Expected(kind, agents=self._kind_agents[call.tool, kind]) for kind in likely]
        return replace(first, other=others[0]) if others else first

    def _held(self, call: MadeCall, held: frozenset[str]) -> Iterable[Named]:
        for name in call.names:
            for named in self._named.get((call.tool, name), ()):
                if held.issuperset(named.names) and _runs(call, named):
                    yield named

    def _is_blamed(self, call: MadeCall, place: str | None) -> bool:
        """One agent alone could teach the weights that such calls work."""
        return (place is None or place in self.places) and any(
            self._rate(named, place) >= _NAMED_RATE
            and (named.failed + 0.25) / (named.held - named.lone + 1.0) >= _RATE_OF_OTHERS
            for named in self._held(call, frozenset(call.names) - call.bound)
        )

    def _rate(self, named: Named, place: str | None) -> float:
        here = self.places.get(place) if place is not None else None
        if here is not None:
            known = [ended for name in named.names if (ended := here.names.get(name)) is not None]
            if known:
                failed, worked = min(each.failed for each in known), max(each.worked for each in known)
                return (failed + 0.25) / (failed + worked + 1.0)
        return (named.failed + 0.25) / (named.held + 1.0)


def _runs(call: MadeCall, failure: Named | Expected) -> bool:
    """Whether the call runs the program that failed: `npm run tests` fails, and `ls tests` works."""
    return not failure.program or failure.program in call.programs(failure.names)


class KindScores:
    """Chances of the kinds of failure. `weights`: float32 (2 ** 16,). `counts`: how often each kind was met."""

    def __init__(self, weights: Weights, counts: Iterable[int]) -> None:
        self.weights = weights
        self._prior = 0.3 * np.log(np.array(list(counts), np.float32) + 1.0)

    def chances(self, found: Features) -> Weights:
        """Return float32 (kinds,)."""
        cells = kind_cells(found, len(self._prior))
        scores: Weights = found.values[: found.of_kind] @ self.weights[cells] + self._prior
        powers: Weights = np.exp(scores - scores.max(initial=-np.inf))
        chances: Weights = powers / powers.sum()
        return chances


def kind_cells(found: Features, kinds: int) -> Ids:
    """Return uint32 (features, kinds)."""
    numbers = np.arange(1, kinds + 1, dtype=np.uint32) * _KIND
    return mixed(found.ids[: found.of_kind, None] + numbers[None, :], _KIND_SALT) & _KIND_MASK


def call_cells(found: Features) -> Ids:
    """Return uint32 (features,)."""
    return found.ids & _CALL_MASK


def failure_chance(weights: Weights, bias: float, found: Features) -> float:
    """`weights`: float32 (2 ** 17,)."""
    score = float(weights[call_cells(found)] @ found.values) + bias
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, score))))
