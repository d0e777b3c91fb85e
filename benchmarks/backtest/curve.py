"""Measure the learning curve: how well failing calls are predicted after more and more sessions.

The real learner and gate take in the training sessions one by one, in the order of the stream and at the pace of a busy
fleet; the version in service predicts the calls of the test sessions, beside the bare base. Online learning takes half
a second of CPU for each 32 sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.backtest.cases import Case
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import Base, RiskNetwork
from fleetlore.tenants import DEFAULT_TENANT
from fleetlore.wire.adapter_manifest import DataRange
from fleetlore.wire.trajectory import Judgment, Verdict
from models.adapter.learner import Learner
from models.data.dataset import Example, examples_of
from models.promotion.metrics import predict

SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# On the learner's clock: a busy fleet, whose updates take full batches.
SECONDS_BETWEEN = 0.01


def learning_curve(train: Sequence[Case], test: Sequence[Case], base: Base, encoder: StaticEncoder) -> dict[str, Any]:
    """Figures by number of training sessions; None after too few sessions.

    Returns:
        sessions: the points of the curve, along which all lists run. step_auroc: by source, of the bare base (one
            figure) and of the adapter in service. versions: published until then.
    """
    points = sorted({max(1, round(share * len(train))) for share in SHARES})
    asked: dict[str, list[Example]] = {}
    for case in test:
        asked.setdefault(case.source, []).extend(examples_of(_judgment(case), encoder))
    bare = {source: _auroc(base.network, examples) for source, examples in sorted(asked.items())}
    rows: dict[str, list[float | None]] = {source: [] for source in bare}
    versions = []
    for seen, (network, published) in enumerate(_learned(train, base, encoder), 1):
        if seen in points:
            versions.append(published)
            for source, row in rows.items():
                row.append(_auroc(network, asked[source]))
    return {
        "sessions": points,
        "step_auroc": {source: {"base": bare[source], "adapter": row} for source, row in rows.items()},
        "versions": versions,
    }


def _learned(train: Sequence[Case], base: Base, encoder: StaticEncoder) -> Iterator[tuple[RiskNetwork, int]]:
    """After each session, the network in service and the number of versions published so far."""
    learner, published = Learner(DEFAULT_TENANT, base, encoder), 0
    for number, case in enumerate(train):
        now = number * SECONDS_BETWEEN
        if case.failed is not None:
            learner.offer(_judgment(case), now)
        while learner.update_due(now):
            learner.update(now)
        if learner.candidate_due(now):
            candidate = learner.candidate()
            if candidate.report.passed:
                published += 1
                data = (DataRange("judgments", 0, 0, number),)
                learner.resume(candidate.weights, learner.manifest(candidate, published, data, now))
        yield learner.network, published


def _judgment(case: Case) -> Judgment:
    verdict = Verdict(
        label="failure" if case.failed else "success",
        probability=float(not case.failed),
        source="reward",
        version="log",
    )
    return Judgment(trajectory=case.trajectory, verdict=verdict)


def _auroc(network: RiskNetwork, examples: Sequence[Example]) -> float | None:
    found = predict(network, examples).auroc
    return None if found != found else found
