"""Measure at which calls the network adds to the call model, and how much each of the two then counts.

A last layer of two weights and a bias takes the log odds of both (wide and deep, Cheng et al. 2016), one for each tool
and state of a session, since after a failure the network knows most and before the first call nothing; its rival is the
same layer with the call model's alone. Every call was foreseen by all of them before they learned it (Dawid 1984). The
network speaks from where the evidence suffices that the layer with it foresees better, until all of that is lost again;
elsewhere agents hear the call model alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetlore.calls.model import sigmoid
from fleetlore.risk.outlook import odds
from fleetlore.wire.adapter_manifest import Blend
from models.calls.thresholds import Foreseen
from models.data.dataset import UNLABELLED, Example, session_key
from models.promotion.gate import Where
from models.promotion.metrics import Predictions
from models.promotion.prequential import Prequential

RATE = 0.05
# Windows of sessions whose calls the call model has not foreseen yet.
MOST_WAITING = 512
# Evidence beyond this is not kept: a network that no longer adds must fall silent soon.
MOST_EVIDENCE = 10.0

# What the call model foresaw, by key of the session (`Example.session`) and number of the call in it.
Line = Mapping[tuple[str, int], Foreseen]


def line_of(tenant: str, foreseen: Iterable[Foreseen]) -> Line:
    """What a version of the call model foresaw of the calls that it then learned."""
    keys: dict[str, str] = {}
    found = {}
    for each in foreseen:
        key = keys.get(each.session) or keys.setdefault(each.session, session_key(tenant, each.session))
        found[key, each.position] = each
    return found


class Layer:
    """Logistic regression on a few log odds, learned by Adagrad. It begins with the first of them as it is.

    Attributes:
        weights: of the log odds in turn, and of the bias.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = list(weights)
        self._squares = [1.0] * len(self.weights)

    def learn(self, inputs: Sequence[float], failed: bool) -> float:
        """P(fails) as it was before this call was learned."""
        values = (*inputs, 1.0)
        fails = sigmoid(sum(weight * value for weight, value in zip(self.weights, values, strict=True)))
        for place, value in enumerate(values):
            slope = (fails - failed) * value
            self._squares[place] += slope * slope
            self.weights[place] -= RATE * slope / math.sqrt(self._squares[place])
        return fails


@dataclass(slots=True)
class _Rivals:
    """The layers of a tool in one state, and the evidence that the one with the network foresees better.

    Attributes:
        speaks: the evidence sufficed once, and is not lost since.
    """

    alone: Layer
    both: Layer
    evidence: Prequential
    speaks: bool


class Beside:
    """The network beside the call model over the life of a learner.

    Args:
        session_gain: as in `models.promotion.prequential`.
        needed: log evidence from which the network speaks.
    """

    def __init__(self, session_gain: float, needed: float) -> None:
        self._session_gain = session_gain
        self._needed = needed
        self._rivals: dict[Where, _Rivals] = {}
        self._waiting: OrderedDict[str, tuple[Example, npt.NDArray[np.float64]]] = OrderedDict()

    def go_on(self, blends: Iterable[Blend]) -> None:
        """Continue from a published version where nothing is known here."""
        for each in blends:
            if each.where not in self._rivals:
                weights, evidence = (each.line, each.network, each.bias), each.log_evidence
                self._rivals[each.where] = self._begun(weights, evidence, speaks=True)

    def forget(self, tools: Collection[str]) -> None:
        """Begin again with tools whose rules have changed."""
        self._rivals = {where: rivals for where, rivals in self._rivals.items() if where[0] not in tools}

    def foresee(self, examples: Sequence[Example], network: Predictions) -> None:
        """Keep what the network says of new sessions before it learns them, until the call model's word is there."""
        start = 0
        for example in examples:
            stop = start + int((example.failed != UNLABELLED).sum())
            self._waiting[example.key] = example, network.probability[start:stop]
            start = stop
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popitem(last=False)

    def learn(self, line: Line) -> None:
        """Hold both against how the calls ended, where the call model has foreseen them."""
        met: list[Example] = []
        rows: dict[Where, list[tuple[int, float, float, bool]]] = {}
        numbers: dict[str, int] = {}
        for example, said in list(self._waiting.values()):
            calls = _calls(example, said, line)
            if not calls:
                continue
            del self._waiting[example.key]
            met.append(example)
            number = numbers.setdefault(example.session, len(numbers))
            for foreseen, network in calls:
                where, inputs = (foreseen.tool, foreseen.state), (odds(foreseen.fails), odds(network))
                rivals = self._rivals.setdefault(where, self._begun((1.0, 0.0, 0.0)))
                alone = rivals.alone.learn(inputs[:1], foreseen.failed)
                both = rivals.both.learn(inputs, foreseen.failed)
                rows.setdefault(where, []).append((number, alone, both, foreseen.failed))
        for where, each in rows.items():
            sessions, alone_of, both_of, ended = (np.array(column) for column in zip(*each, strict=True))
            names = np.full(len(each), where[0])
            both_said, alone_said = (Predictions(p, ended, names, sessions, names) for p in (both_of, alone_of))
            rivals = self._rivals[where]
            rivals.evidence.observe(met, both_said, alone_said)
            shown = rivals.evidence.log_evidence
            rivals.speaks = shown >= (0.0 if rivals.speaks else self._needed)
            if shown > MOST_EVIDENCE:
                rivals.evidence = Prequential(self._session_gain, MOST_EVIDENCE)

    def blends(self) -> tuple[Blend, ...]:
        """Where the network speaks."""
        spoken = []
        for where, rivals in sorted(self._rivals.items()):
            if rivals.speaks:
                line, network, bias = (round(weight, 6) for weight in rivals.both.weights)
                spoken.append(Blend(*where, line, network, bias, round(rivals.evidence.log_evidence, 6)))
        return tuple(spoken)

    def _begun(self, weights: Sequence[float], log_evidence: float = 0.0, *, speaks: bool = False) -> _Rivals:
        return _Rivals(Layer((1.0, 0.0)), Layer(weights), Prequential(self._session_gain, log_evidence), speaks)


def _calls(example: Example, said: npt.NDArray[np.float64], line: Line) -> list[tuple[Foreseen, float]]:
    """The labelled calls that both have foreseen."""
    places = np.flatnonzero(example.failed != UNLABELLED).tolist()
    found = ((line.get((example.session, example.start + place)), p) for place, p in zip(places, said, strict=True))
    return [(foreseen, float(p)) for foreseen, p in found if foreseen is not None]
