"""Learn a version of the call model from closed sessions.

A version is a function of the *set* of sessions: they are sorted by time and learned in one pass.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate
from math import sqrt
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fleetlore.calls.call import EndedCall
from fleetlore.calls.context import CallContext, warning_id
from fleetlore.calls.document import CALL_BITS, KIND_BITS, MAX_KINDS, Document, Kind, Named, quantised
from fleetlore.calls.model import Features, KindScores, call_cells, failure_chance, features, kind_cells
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.trajectory import Trajectory
from models.calls.evidence import Evidence, Facts, Fleet, OldValues, Who, in_turns
from models.calls.gate import Foreseen, Trial, thresholds
from models.calls.look_ups import LookUps, PlaceRecords, failures_met
from models.memory.identities import identities, texts_of
from models.place_names import told_of_place

__all__ = ["CallTraining", "TrainedCalls", "train"]

_REPLAYED = 10_000
_BALANCING = 1_024
_FORESEEN = 4_000
MOST_NAMES = 8_192
_NAMES_A_FAILURE = 5
# A version keeps at least this share of the weights. Names matter more than the small ones.
_LEAST_SHARE = 1 / 8
# UTF-8 bytes of the names of tools: 1,000 names of 24 characters. Each is in the thresholds too.
_TOOL_BYTES = 24_000
# Tools that are remembered, at 3 kB each.
KEPT_TOOLS = 4_096
_KEPT_NAMED, _KEPT_KINDS = 50_000, 4_096
# Failures kept whose first name is the same: each call with the name is compared with all of them.
_KEPT_OF_NAME = 64
_SAID_RATE = 0.4
_FREE_CALLS = 4
Key = tuple[str, str, tuple[str, ...], str]  # tool, kind, names, program
# Adagrad (Duchi et al. 2011) over hashed features.
_RATE = np.float32(0.1)
# Decay of the squared gradients: the world may change.
_DECAY = np.float32(0.999)
# Kinds are rare and do not decay.
_KEEP = np.float32(1.0)
_START = 1e-2


class _NamedFailures:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # Sessions in which a call failed so, and those in which another with the names worked, or none failed so.
        self._failed = Facts[Key](fleet, _KEPT_NAMED)
        self._passed: dict[Key, Evidence] = {}
        self._of_name: defaultdict[tuple[str, str], list[Key]] = defaultdict(list)

    def learn(self, who: Who, calls: Iterable[_Made]) -> None:
        passed: set[Key] = set()
        worked: set[Key] = set()
        failed: dict[Key, None] = {}
        for made in calls:
            names = frozenset(made.call.names)
            for name in names:
                known = self._of_name.get((made.call.tool, name), ())
                within = [each for each in known if names.issuperset(each[2])]
                within = [each for each in within if not each[3] or each[3] in made.call.programs(each[2])]
                (passed if made.call.step.failed else worked).update(within)
            if (key := made.failure) is not None and key[2]:
                failed[key] = None
                if key not in self._passed:
                    self._passed[key] = Evidence(self._fleet)
                    self._of_name[key[0], key[2][0]].append(key)
        for each in worked | (passed - failed.keys()):
            self._passed[each].add(who)
        for old in {old for each in failed for old in self._failed.count(each, who)} - self._failed.keys():
            self._forget(old)
        for first in {(key[0], key[2][0]) for key in failed}:
            if len(known := self._of_name.get(first, ())) > _KEPT_OF_NAME:
                turns = in_turns(reversed(known), lambda each: self._failed[each].alone)
                for old in turns[_KEPT_OF_NAME - _KEPT_OF_NAME // 8 :]:
                    del self._failed[old]
                    self._forget(old)

    def _forget(self, key: Key) -> None:
        del self._passed[key]
        known = self._of_name[key[0], key[2][0]]
        known.remove(key)
        if not known:
            del self._of_name[key[0], key[2][0]]

    def said(self, most: int) -> tuple[Named, ...]:
        found = []
        for key, failed in self._failed.items():
            if failed.is_enough:
                votes = failed.against(self._passed[key])
                held = votes.failed + votes.passed
                found.append(Named(*key[:3], votes.failed, held, failed.agents, key[3], votes.lone))
        often = [each for each in found if each.failed >= _SAID_RATE * each.held]
        often.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.kind, each.names, each.program))
        return tuple(often[:most])


@dataclass(frozen=True, slots=True)
class TrainedCalls:
    weights: bytes
    sessions: int
    agents: int
    calls: int
    tools: tuple[str, ...]
    foreseen: tuple[Foreseen, ...] = field(repr=False)


def train(sessions: Iterable[Trajectory], *, quorum: int = 2) -> TrainedCalls:
    newest: dict[str, Trajectory] = {}
    for session in sessions:
        known = newest.get(session.id)
        if known is None or session.revision > known.revision:
            newest[session.id] = session
    training = CallTraining(quorum)
    for session in sorted(newest.values(), key=lambda each: (each.ended, each.id)):
        training.learn(session)
    return training.version()


class _Made(NamedTuple):
    position: int
    call: EndedCall
    failure: Key | None
    found: Features
    state: State


class _Replay(NamedTuple):
    found: Features
    failed: bool
    weight: float
    tool: str
    agent: str


class CallTraining:
    def __init__(self, quorum: int = 2, closed_tools: tuple[str, ...] = ()) -> None:
        self._weights = _CallWeights()
        self._fleet = Fleet(quorum)
        self._closed_tools = closed_tools
        self._kinds = _KindWeights(self._fleet)
        self._named = _NamedFailures(self._fleet)
        self._places = PlaceRecords(self._fleet)
        self.look_ups = LookUps(self._fleet)
        self._old_values = OldValues(self._fleet)
        self._replayed: deque[_Replay] = deque(maxlen=_REPLAYED)
        self._made_by: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._foreseen: defaultdict[tuple[str, State], deque[Foreseen]] = defaultdict(lambda: deque(maxlen=_FORESEEN))
        self._trials: defaultdict[tuple[str, State], Trial] = defaultdict(lambda: Trial(self._fleet))
        self._random = random.Random(0)
        self._sessions = 0
        self._until = 0.0
        self._calls = 0

    def learn(self, session: Trajectory) -> None:
        who, context = Who.of(session), CallContext(session.goal)
        self._fleet.agents.add(who.agent)
        made = list(self._made(session, context))
        place, calls = _place(session, context), [each.call for each in made]
        # A transient failure is not caused by the call.
        lasting = [each for each in made if not each.call.step.transient]
        for each in lasting:
            self._made_by[each.call.tool][who.agent] += 1
        weights = {tool: self._weight(tool, who.agent) for tool in {each.call.tool for each in lasting}}
        for number, each in enumerate(lasting, self._calls):
            step, key = each.call.step, (each.call.tool, each.state)
            if weights[step.tool] == 1.0:
                fails = self._weights.fails(each.found)
                self._foreseen[key].append(Foreseen(number, session.id, each.position, *key, fails, step.failed))
            warning = warning_id(*key)
            if (warning in step.advice) != (warning in step.withheld):
                self._trials[key].add(who, shown=warning in step.advice, failed=step.failed)
        for each in lasting:
            self._learn(each, who, weights[each.call.tool])
        self._named.learn(who, lasting)
        self.look_ups.learn(failures_met(session.goal, calls, who, place))
        self._old_values.learn(who, [each.call.step for each in lasting])
        if place:
            own = identities(texts_of(session.goal, session.calls))
            told = told_of_place(calls, own, self._closed_tools)
            self._places.learn(place, who, told, context.goal_words)
        self._sessions += 1
        self._until = max(self._until, session.came)
        self._calls += len(lasting)
        if len(self._made_by) > KEPT_TOOLS:
            for tool in self._ranked()[KEPT_TOOLS - KEPT_TOOLS // 8 :]:
                del self._made_by[tool]
                for state in get_args(State):
                    self._foreseen.pop((tool, state), None)
                    self._trials.pop((tool, state), None)

    def _ranked(self) -> list[str]:
        """The tools, most used first. Those of one principal alone are in turns."""
        made = self._made_by
        best = sorted(made, key=lambda tool: (-len(made[tool]), -made[tool].total(), tool))
        return in_turns(best, lambda tool: next(iter(made[tool])) if len(made[tool]) == 1 else "")

    def _made(self, session: Trajectory, context: CallContext) -> Iterator[_Made]:
        for position, step in enumerate(session.calls):
            call, place = EndedCall(step), _place(session, context)
            found = features(call, context, self._places.names(place) if place else None)
            failure = None if call.kind is None else (call.tool, *call.kind, call.program(call.kind.names))
            yield _Made(position, call, failure, found, context.state)
            context.record(call, step.answer, step.family)

    def version(self) -> TrainedCalls:
        foreseen = sorted((each for some in self._foreseen.values() for each in some), key=lambda each: each.number)
        agents, tools = len(self._fleet.agents), self._tools()
        return TrainedCalls(self._document(tools), self._sessions, agents, self._calls, tuple(tools), tuple(foreseen))

    def _tools(self) -> dict[str, int]:
        calls = {tool: made.total() for tool, made in self._made_by.items()}
        turns = self._ranked()
        sizes = zip(turns, accumulate(len(tool.encode()) for tool in turns), strict=True)
        return {tool: calls[tool] for tool in sorted(tool for tool, size in sizes if size <= _TOOL_BYTES)}

    def _balanced(self) -> _CallWeights:
        weights, draws = deepcopy(self._weights), random.Random(0)
        of_tools: defaultdict[str, defaultdict[str, list[_Replay]]] = defaultdict(lambda: defaultdict(list))
        for each in self._replayed:
            of_tools[each.tool][each.agent].append(each)
        several = [list(agents.values()) for agents in of_tools.values() if len(agents) > 1]
        for agents in several * (_BALANCING // max(1, len(several))):
            weights.learn(*draws.choice(draws.choice(agents))[:2])
        return weights

    def _document(self, tools: dict[str, int]) -> bytes:
        """All weights and names that agents read: first small weights go, then names of places and failures."""
        weights = self._balanced()
        kinds, most, share = self._kinds, MOST_NAMES, 1.0
        look_ups, at_places = self.look_ups.said(), self.look_ups.at_places()
        old_values = self._old_values.version()
        foreseen = {key: calls for key, calls in self._foreseen.items() if key[0] in tools}
        while True:
            document = Document(
                calls=quantised(weights.weights, share),
                kinds=quantised(kinds.weights, share),
                bias=weights.bias,
                tools=tools,
                kind_texts=tuple(Kind(*kind, met.agents) for kind, met in zip(kinds.kinds, kinds.met, strict=True)),
                kind_counts=tuple(kinds.counts),
                named=self._named.said(most // _NAMES_A_FAILURE),
                places=self._places.said(most, at_places),
                thresholds=thresholds(foreseen, self._trials),
                look_ups=look_ups[:most],
                old_values=old_values,
                until=self._until,
            )
            encoded = document.to_bytes()
            with suppress(ValueError):
                Document.from_bytes(encoded)
                return encoded
            if not most:
                raise ValueError(f"a version of {len(encoded)} bytes, which no agent reads")
            if share > _LEAST_SHARE:
                share *= 0.75
            else:
                most //= 2

    def _weight(self, tool: str, agent: str) -> float:
        made = self._made_by[tool]
        usual = max(_FREE_CALLS, sorted(made.values())[(len(made) - 1) // 2])
        return 1.0 if len(made) == 1 else min(1.0, (usual / made[agent]) ** 2)

    def _learn(self, made: _Made, who: Who, weight: float) -> None:
        if made.failure is not None:
            self._kinds.learn(made.found, made.failure[:2], who)
        self._weights.learn(made.found, made.call.step.failed, weight)
        if self._replayed:
            again = self._replayed[self._random.randrange(len(self._replayed))]
            self._weights.learn(*again[:3])
        self._replayed.append(_Replay(made.found, made.call.step.failed, weight, made.call.tool, who.agent))


def _place(session: Trajectory, context: CallContext) -> str:
    place = session.place or context.place or ""
    return "" if "@" in place or "://" in place else place


class _HashedWeights:
    def __init__(self, bits: int) -> None:
        self.weights = np.zeros(2**bits, np.float32)
        self._squares = np.full(2**bits, _START, np.float32)

    def _step(self, cells: npt.NDArray[np.uint32], gradient: npt.NDArray[np.float32], decay: np.float32) -> None:
        squares = self._squares[cells] * decay + gradient * gradient
        self._squares[cells] = squares
        self.weights[cells] -= _RATE * gradient / np.sqrt(squares)


class _CallWeights(_HashedWeights):
    def __init__(self) -> None:
        super().__init__(CALL_BITS)
        self.bias = 0.0
        self._bias_square = 1.0

    def fails(self, found: Features) -> float:
        return failure_chance(self.weights, self.bias, found)

    def learn(self, found: Features, failed: bool, weight: float = 1.0) -> None:
        slope = weight * (self.fails(found) - failed)
        self._step(call_cells(found), np.float32(slope) * found.values, _DECAY)
        self._bias_square += slope * slope
        self.bias -= float(_RATE) * slope / sqrt(self._bias_square)


class _KindWeights(_HashedWeights):
    """P(kind of failure | the call fails). One agent alone can bring half of the `MAX_KINDS`, met three times."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(KIND_BITS)
        self._fleet = fleet
        self.kinds: dict[tuple[str, str], int] = {}
        self.counts: list[int] = []
        self.met: list[Evidence] = []
        self._new = Facts[tuple[str, str]](fleet, _KEPT_KINDS)

    def learn(self, found: Features, kind: tuple[str, str], who: Who) -> None:
        number = self.kinds.get(kind)
        if number is not None:
            self.met[number].add(who)
        else:
            self._new.count(kind, who)
            met = self._new.get(kind)
            if met is None or met.times < 3 or not self._has_room(met):
                return
            number = self.kinds[kind] = len(self.kinds)
            self.met.append(self._new.pop(kind))
            self.counts.append(0)
        self.counts[number] += 1
        slopes = KindScores(self.weights, self.counts).chances(found)
        slopes[number] -= 1.0
        gradient = found.values[: found.of_kind, None] * slopes[None, :]
        self._step(kind_cells(found, len(self.counts)), gradient, _KEEP)

    def _has_room(self, met: Evidence) -> bool:
        alone = sum(each.alone != "" for each in self.met) if met.alone and not self._fleet.is_one else 0
        return len(self.met) < MAX_KINDS and alone < MAX_KINDS // 2
