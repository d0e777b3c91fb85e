"""Measure what an agent hears of a call: the call model alone, or the network beside it where the gate says so.

Judged sessions go through the learner as in the trainer: every call is foreseen by the version in service before its
session is learned, and the call model's word is its own foresight (prequential evaluation, Dawid 1984). The rivals are
the call model alone and the version in service alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, NamedTuple

from benchmarks.evaluate.logged.figures import interval
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import Base, RiskNetwork
from fleetlore.risk.outlook import blended
from fleetlore.wire.adapter_manifest import Blend, State
from fleetlore.wire.trajectory import Judgment
from models.adapter.beside import line_of
from models.adapter.learner import Learner
from models.calls.training import CallTraining
from models.data.auroc import auroc
from models.data.dataset import UNLABELLED, Example, examples_of
from models.promotion.metrics import predict

# An easy pace, at which small batches are learned too.
SECONDS_A_SESSION = 0.2
LIKELY = 0.7
RIVALS = ("call model", "network", "both")

Blends = Mapping[tuple[str, State], Blend]


class Heard(NamedTuple):
    """A call, P(fails) by each of `RIVALS`, and how it ended. `number`: of its session."""

    number: int
    session: str
    tool: str
    state: State
    chances: tuple[float, float, float]
    failed: bool


def heard(judgments: Sequence[Judgment], base: Base, encoder: StaticEncoder) -> dict[str, Any]:
    """Figures over the second half of a stream; `speaks`: where the network does, and after how many sessions."""
    training, tenant = CallTraining(), judgments[0].trajectory.tenant
    for each in judgments:
        training.learn(each.trajectory)
    line = line_of(tenant, training.version().foreseen)
    learner, blends, versions = Learner(tenant, base, encoder), dict[tuple[str, State], Blend](), 0
    speaks: dict[str, int] = {}
    calls: list[Heard] = []
    learned = CallTraining()
    for number, judgment in enumerate(judgments):
        now = number * SECONDS_A_SESSION
        for example in examples_of(judgment, encoder):
            calls += _said(number, judgment, example, learner.network, line, blends)
        learned.learn(judgment.trajectory)
        learner.offer(judgment, now)
        while learner.update_due(now):
            learner.update(now)
        if learner.candidate_due(now):
            candidate = learner.candidate(line_of(tenant, learned.version().foreseen))
            if candidate.report.passed:
                versions += 1
                manifest = learner.manifest(candidate, versions, (), now)
                learner.resume(candidate.weights, manifest)
                blends = {each.where: each for each in manifest.blends}
                for tool, state in blends:
                    speaks.setdefault(f"{tool} {state}", number)
    counted = [each for each in calls if each.number >= len(judgments) // 2]
    by_place: defaultdict[str, list[Heard]] = defaultdict(list)
    for call in counted:
        by_place[f"{call.tool} {call.state}"].append(call)
    often = sorted(by_place, key=lambda place: (-len(by_place[place]), place))[:6]
    return {
        "versions": versions,
        "speaks": speaks,
        "rivals": {name: _figures(counted, place) for place, name in enumerate(RIVALS)},
        "gain": {"all": _gain(counted), **{place: _gain(by_place[place]) for place in often}},
    }


def _said(
    number: int,
    judgment: Judgment,
    example: Example,
    network: RiskNetwork,
    line: Mapping[tuple[str, int], Any],
    blends: Blends,
) -> list[Heard]:
    places = [place for place, label in enumerate(example.failed.tolist()) if label != UNLABELLED]
    found = []
    for place, alone in zip(places, predict(network, [example]).probability.tolist(), strict=True):
        known = line.get((example.session, example.start + place))
        if known is not None:
            blend = blends.get((known.tool, known.state))
            both = known.fails if blend is None else blended(blend, known.fails, alone)
            chances = known.fails, alone, both
            found.append(Heard(number, judgment.trajectory.id, known.tool, known.state, chances, known.failed))
    return found


def _figures(calls: Sequence[Heard], rival: int) -> dict[str, float | None]:
    """AUROC and log loss; after a failure also what is said to be likely: how often, how often rightly, and of how
    many failures.
    """
    chances, failed = [each.chances[rival] for each in calls], [each.failed for each in calls]
    after = [each for each in calls if each.state == "after_failure"]
    likely = [each for each in after if each.chances[rival] >= LIKELY]
    right = sum(each.failed for each in likely)
    return {
        "auroc": auroc(chances, failed),
        "log_loss": sum(_loss(each, rival) for each in calls) / max(1, len(calls)),
        "likely": len(likely) / max(1, len(after)),
        "right": right / len(likely) if likely else None,
        "recall": right / max(1, sum(each.failed for each in after)),
    }


def _gain(calls: Sequence[Heard]) -> dict[str, float]:
    """Nats a call that both save over the call model alone."""
    return interval([each.session for each in calls], [_loss(each, 0) - _loss(each, 2) for each in calls])


def _loss(call: Heard, rival: int) -> float:
    chance = call.chances[rival]
    return -log(max(1e-6, chance if call.failed else 1.0 - chance))
