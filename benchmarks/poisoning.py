"""Measure what lying agents cost, and whether honest changes are still believed.

A fleet of 20 agents in the scripted tool world. First all are honest. Then 6 of them call every failure of two tools a
success and send five times as much as the others, so that 68 % of all sessions are theirs. The figure is how far the
recall of failures of these two tools (P(fails) > .5 on unseen honest sessions) falls, in percentage points, with the
learner as it is: influence by agent, distrust, gate. Beside it, in the same run: the plain pooling of whatever comes,
and the honest agents alone.

The other way round: the rules of the two tools are turned around and all agents say so. What all agree on must be
learned, so the AUROC on the new rules is held against a plain learner that fine-tunes on whatever comes, and the price
is what is forgotten of the other tools.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from benchmarks.demo.world import World
from benchmarks.evaluate.worlds.disturbed import ChangedWorld, fallible, lie, sessions
from benchmarks.pretrain import judged
from benchmarks.report import Report, Row
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import RiskNetwork, load_base
from fleetlore.wire.trajectory import Judgment
from models.adapter.learner import Learner
from models.adapter.lora_trainer import ContrastiveTrainer
from models.data.dataset import Example, examples_of
from models.promotion.metrics import Predictions, predict

WORLD = 0
AGENTS = [f"agent-{number:02}" for number in range(20)]
LIARS = AGENTS[:6]
VOLUME = 5
BATCH = 32
SECONDS_A_SESSION = 0.01  # a busy fleet: whole batches
LEARNED_UPDATES = 60
UPDATES = 60
UNSEEN = 300
BAR_POINTS = 3.0
UNIT = "percentage points of recall lost"


@dataclass(frozen=True, slots=True)
class Streams:
    """Sessions of one run, judged."""

    tools: tuple[str, ...]
    before: list[Judgment]
    lies: list[Judgment]
    honest: list[Judgment]
    news: list[Judgment]
    unseen: list[Example]
    unseen_after: list[Example]


def run(quick: bool) -> Report:
    torch.set_num_threads(1)
    streams = make(quick)
    began = time.process_time()
    known = learn(streams.before)
    plain_known = pool(streams.before)
    seconds = time.process_time() - began
    before = recall(known, streams)
    figures = {
        "the learner as it is": (before, recall(learn([*streams.before, *streams.lies]), streams)),
        "plain pooling": (recall(plain_known, streams), recall(pool([*streams.before, *streams.lies]), streams)),
        "honest agents only": (before, recall(learn([*streams.before, *streams.honest]), streams)),
    }
    lost = {name: 100 * (was - now) for name, (was, now) in figures.items()}
    changed, plain_changed = learn([*streams.before, *streams.news]), pool([*streams.before, *streams.news])
    news = {
        "the learner as it is": aurocs(changed, known, streams),
        "a plain learner": aurocs(plain_changed, plain_known, streams),
    }
    new_rules, plain_rules = news["the learner as it is"][0], news["a plain learner"][0]
    return Report(
        name="poisoning",
        figure=lost["the learner as it is"],
        bar=BAR_POINTS,
        unit=UNIT,
        higher_is_better=False,
        peers={name: figure for name, figure in lost.items() if name != "the learner as it is"},
        reference=None,
        rows=tuple(
            Row(name=name, figure=lost[name], unit=UNIT, note=f"recall {was:.3f} before, {now:.3f} after")
            for name, (was, now) in figures.items()
        ),
        also=(
            Report(
                name="honest_change",
                figure=new_rules,
                bar=plain_rules - 0.01,
                unit="AUROC on the new rules",
                peers={"a plain learner": plain_rules},
                rows=tuple(
                    Row(
                        name=name, figure=new, unit="AUROC on the new rules", note=f"other tools {100 * others:+.1f} pp"
                    )
                    for name, (new, others) in news.items()
                ),
            ),
        ),
        note=f"two tools ({', '.join(streams.tools)}), {len(streams.lies):,} sessions of {len(AGENTS)} agents, "
        f"{len(LIARS)} of "
        f"them lying; {seconds:.0f} s of CPU to learn what was known before",
    )


def make(quick: bool) -> Streams:
    """All sessions of the run."""
    learned, updates, unseen = (4, 4, 40) if quick else (LEARNED_UPDATES, UPDATES, UNSEEN)
    world = World(WORLD)
    probe = judgments(world, 200, 4)
    counts = {tool: sum(step.tool == tool for j in probe for step in j.trajectory.steps) for tool in fallible(world)}
    tools = tuple(sorted(sorted(counts, key=lambda tool: (-counts[tool], tool))[:2]))
    crowd = [*AGENTS[len(LIARS) :], *LIARS * VOLUME]
    flood = sessions(world, updates * BATCH, seed=1, agents=crowd)
    encoder = shared_encoder()
    changed = ChangedWorld(WORLD, tools)
    return Streams(
        tools=tools,
        before=judgments(world, learned * BATCH, 0),
        lies=list(judged(lie(session, tools) if session["agent"] in LIARS else session for session in flood)),
        honest=list(judged(sessions(world, updates * BATCH, seed=1, agents=AGENTS[len(LIARS) :]))),
        news=judgments(changed, updates * BATCH, 2),
        unseen=[e for judgment in judgments(world, unseen, 3) for e in examples_of(judgment, encoder)],
        unseen_after=[e for judgment in judgments(changed, unseen, 3) for e in examples_of(judgment, encoder)],
    )


def judgments(world: World, count: int, seed: int) -> list[Judgment]:
    """Sessions of all agents, none of which lies."""
    return list(judged(sessions(world, count, seed=seed, agents=AGENTS)))


def learn(stream: Iterable[Judgment]) -> RiskNetwork:
    """The version that a trainer has published after all of them, or the bare base."""
    learner = Learner("default", load_base(), shared_encoder())
    for _ in versions(learner, stream):
        pass
    return learner.network


def versions(learner: Learner, stream: Iterable[Judgment]) -> Iterator[str]:
    """Let a learner go through a stream as the trainer does; gives what the gate said of each candidate."""
    for number, judgment in enumerate(stream):
        now = number * SECONDS_A_SESSION
        learner.offer(judgment, now)
        if learner.update_due(now):
            learner.update(now)
        if learner.candidate_due(now):
            candidate = learner.candidate()
            if candidate.report.passed:
                manifest = learner.manifest(candidate, number, (), now)
                learner.resume(candidate.weights, manifest)
            yield candidate.report.reason


def pool(stream: Iterable[Judgment]) -> RiskNetwork:
    """Fine-tuning on whatever comes, in the order it comes: no cap, no rehearsal, no distrust, no gate."""
    trainer, encoder = ContrastiveTrainer(load_base()), shared_encoder()
    judged_sessions = list(stream)
    for start in range(0, len(judged_sessions), BATCH):
        batch = [e for judgment in judged_sessions[start : start + BATCH] for e in examples_of(judgment, encoder)]
        # As if each session were an agent of its own: no agent is capped then.
        trainer.update([replace(episode, agent=episode.key) for episode in batch], [])
    return trainer.network_of(trainer.weights())


def recall(network: RiskNetwork, streams: Streams) -> float:
    """Of the failures of the two tools, by the old rules."""
    found = predict(network, streams.unseen)
    return of(found, streams.tools, inside=True).recall


def aurocs(network: RiskNetwork, known: RiskNetwork, streams: Streams) -> tuple[float, float]:
    """AUROC on the two tools by the new rules, and the change of the AUROC on all other tools."""
    after, before = predict(network, streams.unseen_after), predict(known, streams.unseen_after)
    others = of(after, streams.tools, inside=False).auroc - of(before, streams.tools, inside=False).auroc
    return of(after, streams.tools, inside=True).auroc, others


def of(predictions: Predictions, tools: tuple[str, ...], *, inside: bool) -> Predictions:
    """Steps of these tools, or of all others."""
    return predictions.where((sum(predictions.tools == tool for tool in tools) > 0) == inside)
