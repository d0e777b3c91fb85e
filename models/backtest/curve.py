"""Measure learning curves: how well failures are predicted after more and more sessions, in the order of the stream.

P(the session fails) comes from the critic and its baseline, each fitted anew on the first sessions. P(this call fails)
comes from the real learner and gate, which take in the training sessions one by one at the pace of a busy fleet; the
version in service predicts the calls of the test sessions, beside the bare base. All fits together cost as much as one
fit on all sessions, and online learning half a second of CPU for each 32 sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from fleetlore.errors import ConfigError
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import Base, RiskNetwork
from fleetlore.tenants import DEFAULT_TENANT
from fleetlore.wire.adapter_manifest import DataRange
from fleetlore.wire.trajectory import Judgment, Verdict
from models.adapter.learner import Learner
from models.backtest.baseline import fit_tfidf
from models.backtest.cases import Case, Slice
from models.backtest.foresight import BySlice, foresee, prediction_scores
from models.data.dataset import Example, examples_of
from models.judge.critic_fit import fit
from models.promotion.metrics import predict

SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
VIEWS: Final = ("k1", "k2")
# On the learner's clock: a busy fleet, whose updates take full batches.
SECONDS_BETWEEN = 0.01


def learning_curve(
    train: Sequence[Case],
    test: Sequence[Case],
    slices: Sequence[Slice],
    base: Base,
    encoder: StaticEncoder,
    *,
    foreseen: BySlice,
    baseline: BySlice,
    seed: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Figures by number of training sessions; None after too few sessions.

    Args:
        foreseen, baseline: of critic and baseline fitted on all training sessions, the last point of the curve.

    Returns:
        sessions: the points of the curve, along which all lists run. failure_auroc: by source, slice and model (critic,
            tfidf) after one and two calls. step_auroc: by source, of the bare base (one figure) and of the adapter in
            service. versions: published until then.
    """
    points = sorted({max(1, round(share * len(train))) for share in SHARES})
    curves: dict[str, list[BySlice | None]] = {"critic": [], "tfidf": []}
    for seen in points[:-1]:
        progress(f"learning curve: the first {seen:,} sessions")
        curves["critic"].append(_critic(train[:seen], test, slices, seed))
        curves["tfidf"].append(prediction_scores(test, slices, foresee(test, fit_tfidf(train[:seen], seed)))[0])
    curves["critic"].append(foreseen)
    curves["tfidf"].append(baseline)
    progress("learning curve: online updates")
    return {
        "sessions": points,
        "failure_auroc": {
            source: {
                slice_: {
                    model: {view: [None if at is None else at[source][slice_][view] for at in curve] for view in VIEWS}
                    for model, curve in curves.items()
                }
                for slice_ in sorted({s for c, s in zip(test, slices, strict=True) if c.source == source})
            }
            for source in sorted({case.source for case in test})
        },
        **_online(train, test, points, base, encoder),
    }


def _critic(train: Sequence[Case], test: Sequence[Case], slices: Sequence[Slice], seed: int) -> BySlice | None:
    ended = [case for case in train if case.failed is not None]
    try:
        critic, _ = fit([case.trajectory for case in ended], [bool(case.failed) for case in ended], seed)
    except ConfigError:  # the first sessions all ended alike
        return None
    return prediction_scores(test, slices, foresee(test, critic.failure_probability))[0]


def _online(
    train: Sequence[Case], test: Sequence[Case], points: Sequence[int], base: Base, encoder: StaticEncoder
) -> dict[str, Any]:
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
