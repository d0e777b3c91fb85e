"""Measure the CPU time of training: an update, and a hundred with all that belongs to them.

The learner as it is goes through a busy fleet's sessions in the scripted world: 32 new sessions an update, foreseen by
the learner and by the running version before they are learned (evidence, distrust, changes), as many rehearsed ones, a
candidate before the gate whenever one is due, and at the end the published version on sessions that nobody learned
from. Reading sessions into vectors is counted in the hundred and not in the update.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from benchmarks.demo.world import World
from benchmarks.evaluate.worlds.disturbed import sessions
from benchmarks.poisoning import AGENTS, SECONDS_A_SESSION
from benchmarks.pretrain import judged
from benchmarks.report import Report, Row
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from models.adapter.learner import Learner
from models.data.dataset import examples_of
from models.promotion.metrics import predict

WORLD = 0
UPDATES = 100
UNSEEN = 300
BAR_MILLISECONDS = 500.0
BAR_SECONDS = 90.0


@dataclass(slots=True)
class Costs:
    """CPU seconds of each update and of each candidate before the gate; versions published."""

    updates: list[float] = field(default_factory=list)
    candidates: list[float] = field(default_factory=list)
    versions: int = 0


def run(quick: bool) -> Report:
    torch.set_num_threads(1)
    encoder, updates = shared_encoder(), 3 if quick else UPDATES
    stream = judged(sessions(World(WORLD), 48 * updates, agents=AGENTS))
    unseen = list(judged(sessions(World(WORLD), 20 if quick else UNSEEN, seed=3, agents=AGENTS)))
    learner, costs = Learner("default", load_base(), encoder), Costs()
    began = time.process_time()
    for number, judgment in enumerate(stream):
        now = number * SECONDS_A_SESSION
        learner.offer(judgment, now)
        if learner.update_due(now):
            costs.updates.append(_seconds(partial(learner.update, now)))
        if learner.candidate_due(now):
            costs.candidates.append(_seconds(partial(_stand, learner, costs, number, now)))
        if len(costs.updates) == updates:
            break
    auroc = predict(learner.network, [e for judgment in unseen for e in examples_of(judgment, encoder)]).auroc
    whole = time.process_time() - began
    milliseconds = sorted(1000 * seconds for seconds in costs.updates)
    median = statistics.median(milliseconds)
    ms, s = "ms of CPU", "s of CPU"
    return Report(
        name="update",
        figure=median,
        bar=BAR_MILLISECONDS,
        unit=ms,
        higher_is_better=False,
        peers={},
        rows=(
            Row(name="an update, median", figure=median, unit=ms, note="32 new and 32 rehearsed sessions"),
            Row(name="an update, slowest of ten", figure=milliseconds[int(0.9 * len(milliseconds))], unit=ms),
            Row(
                name="a candidate before the gate, and its publication",
                figure=1000 * statistics.median(costs.candidates or [0.0]),
                unit=ms,
                note=f"{len(costs.candidates)} candidates, {costs.versions} versions",
            ),
        ),
        also=(
            Report(
                name="hundred_updates",
                figure=whole,
                bar=BAR_SECONDS,
                unit=s,
                higher_is_better=False,
                peers={},
                rows=(
                    Row(name=f"{updates} updates with all that belongs to them", figure=whole, unit=s),
                    Row(name="of it, the updates", figure=sum(costs.updates), unit=s),
                    Row(name="of it, candidates", figure=sum(costs.candidates), unit=s),
                    Row(name="the last version on unseen sessions", figure=auroc, unit="AUROC of P(step fails)"),
                ),
            ),
        ),
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _stand(learner: Learner, costs: Costs, number: int, now: float) -> None:
    candidate = learner.candidate()
    if candidate.report.passed:
        costs.versions += 1
        learner.resume(candidate.weights, learner.manifest(candidate, number, (), now))
