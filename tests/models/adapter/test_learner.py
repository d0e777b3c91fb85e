from __future__ import annotations

from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.pretrain import world_judgments
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.model import RiskModel
from fleetlore.risk.network import load_base
from fleetlore.wire.adapter_manifest import ProceduralManifest
from fleetlore.wire.trajectory import Judgment, Verdict
from models.adapter.admission import Cadence
from models.adapter.beside import line_of
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig
from models.calls.training import CallTraining
from models.data.dataset import NOWHERE, examples_of
from models.promotion.gate import GateConfig


@cache
def judgments() -> list[Judgment]:
    return list(world_judgments(0, 150))


def learner(**cadence: float) -> Learner:
    return Learner(
        "default",
        load_base(),
        shared_encoder(),
        TrainerConfig(steps=2),
        Cadence(**cadence),  # type: ignore[arg-type]
        GateConfig(
            minimum_steps=20, minimum_failures=3, balanced_accuracy_margin=1.0, auroc_margin=1.0, false_promotions=1e9
        ),
    )


def offer(to: Learner, some: list[Judgment], now: float = 0.0) -> int:
    return sum(to.offer(judgment, now) for judgment in some)


def learned(to: Learner, some: list[Judgment]) -> Learner:
    for judgment in some:
        to.offer(judgment, 0.0)
        if to.update_due(0.0):
            to.update(0.0)
    return to


def test_a_full_batch_is_due_at_once() -> None:
    ready = learner()
    offer(ready, judgments()[:30])
    assert not ready.update_due(0.0)
    offer(ready, judgments()[30:60])
    assert ready.update_due(0.0)


def test_a_small_fleet_waits_for_its_patience_only() -> None:
    small = learner(smallest_update=8, patience_seconds=2.0)
    offer(small, judgments()[:15], now=100.0)
    assert not small.update_due(101.9)
    assert small.update_due(102.0)


def test_too_few_sessions_are_never_due() -> None:
    few = learner(smallest_update=8)
    offer(few, judgments()[:5])
    assert not few.update_due(1e9)


def test_a_session_is_taken_once() -> None:
    once = learner()
    assert offer(once, judgments()[:10]) == 10
    waiting = once.waiting
    assert offer(once, judgments()[:10]) == 0
    assert once.waiting == waiting


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(label="abstained", probability=0.5, source="none", version="1"),
        Verdict(label="success", probability=0.7, source="rules", version="1"),
        Verdict(label="failure", probability=0.3, source="rules", version="1"),
    ],
)
def test_what_is_unsure_is_not_learned(verdict: Verdict) -> None:
    assert offer(learner(), [replace(judgments()[0], verdict=verdict)]) == 0


def test_an_unsure_verdict_that_becomes_sure_is_learned() -> None:
    patient = learner()
    unsure = Verdict(label="abstained", probability=0.5, source="none", version="1")
    offer(patient, [replace(judgments()[0], verdict=unsure)])
    assert offer(patient, judgments()[:1]) == 1


def test_held_out_sessions_never_wait_to_be_learned() -> None:
    fair = learner()
    offer(fair, judgments())
    held = {j.trajectory.id for j in judgments() if examples_of(j, shared_encoder())[0].held_out}
    assert held and not held & set(fair.waiting)


def test_the_same_judgments_give_the_same_adapter() -> None:
    hashes = {learned(learner(), judgments()).candidate().weights for _ in range(2)}
    assert len(hashes) == 1


def test_repeated_judgments_change_nothing() -> None:
    repeated = [judgment for judgment in judgments() for _ in range(2)]
    assert learned(learner(), repeated).candidate().weights == learned(learner(), judgments()).candidate().weights


def test_a_candidate_is_due_after_some_updates_or_when_it_is_quiet() -> None:
    busy = published(judgments()[:45], updates_per_candidate=2, patience_seconds=2.0)
    assert not busy.candidate_due(1e9)
    learned(busy, judgments()[45:84])
    assert not busy.candidate_due(1.0)
    assert busy.candidate_due(2.0)
    learned(busy, judgments()[84:])
    assert busy.candidate_due(1.0)


def test_a_first_version_is_a_candidate_after_one_update() -> None:
    first = learner()
    assert not first.candidate_due(0.0)
    assert learned(first, judgments()[:45]).candidate_due(0.0)


def test_a_passed_candidate_is_loadable_by_an_agent() -> None:
    source = learned(learner(), judgments())
    candidate = source.candidate()
    assert candidate.report.passed
    manifest = source.manifest(candidate, 1, (), 5.0)
    risk_model = RiskModel()
    risk_model.swap(candidate.weights, manifest)
    assert risk_model.version == manifest.version
    assert manifest.parent is None
    assert manifest.sessions > 60 and manifest.agents > 5


def test_the_next_version_names_its_parent() -> None:
    source = learned(learner(), judgments()[:75])
    first = source.candidate()
    manifest = source.manifest(first, 1, (), 5.0)
    source.resume(first.weights, manifest)
    learned(source, judgments()[75:])
    assert source.manifest(source.candidate(), 2, (), 6.0).parent == manifest.version


def test_a_version_says_where_it_adds_to_the_call_model() -> None:
    training = CallTraining()
    for judgment in judgments():
        training.learn(judgment.trajectory)
    line = line_of(judgments()[0].trajectory.tenant, training.version().foreseen)
    source = published(judgments()[:60])
    assert source.running is not None and source.running[1].blends == ()  # nobody told it the call model's word
    learned(source, judgments()[60:])
    candidate = source.candidate(line)
    manifest = source.manifest(candidate, 2, (), 5.0)
    # This gate asks for no evidence, so it speaks of whatever both foresaw.
    assert manifest.blends and {each.tool for each in manifest.blends} <= set(training.version().tools)
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=ProceduralManifest).blends == manifest.blends
    again = learner()
    again.resume(candidate.weights, manifest)
    assert again._beside.blends() == manifest.blends


def published(some: list[Judgment], **cadence: float) -> Learner:
    source = learned(learner(**cadence), some)
    first = source.candidate()
    source.resume(first.weights, source.manifest(first, 1, (), 5.0))
    return source


def test_every_new_session_is_evidence_once_before_it_is_learned() -> None:
    source = published(judgments()[:60])
    assert source.course.evidence.sessions == 0
    learned(source, judgments()[60:100])  # the first update: nothing was learned yet that could be better
    assert len(source.course.provenance.batches) == 1 and source.course.evidence.sessions == 0
    met = len(source.waiting)
    learned(source, judgments()[100:150])
    held = sum(examples_of(j, shared_encoder())[0].held_out for j in judgments()[100:150])
    assert len(source.course.provenance.batches) == 2
    assert source.course.evidence.sessions <= met + 50 - len(source.waiting)
    assert source.course.evidence.sessions > 32 + held // 2
    assert source.candidate().report.figures["evidence_sessions"] == source.course.evidence.sessions


def test_sessions_of_outlier_agents_are_no_evidence() -> None:
    source = published(judgments()[:60])
    learned(source, judgments()[60:100])
    tools = {step.tool for j in judgments() for step in j.trajectory.calls}
    source.outliers = frozenset((j.trajectory.agent, tool) for j in judgments() for tool in tools)
    learned(source, judgments()[100:150])
    assert source.course.evidence.sessions == 0


def test_a_new_version_has_to_be_beaten_anew() -> None:
    source = published(judgments()[:60])
    learned(source, judgments()[60:])
    assert source.course.evidence.sessions > 0
    candidate = source.candidate()
    source.resume(candidate.weights, source.manifest(candidate, 2, (), 6.0))
    assert (source.course.evidence.sessions, source.course.evidence.log_evidence) == (0, 0.0)


def test_a_candidate_that_stays_refused_is_dropped_and_its_sessions_stay_for_rehearsal() -> None:
    strict = Learner(
        "default",
        load_base(),
        shared_encoder(),
        TrainerConfig(steps=2),
        Cadence(fruitless_until_dropped=2),
        GateConfig(minimum_steps=1, minimum_failures=1, auroc_margin=-99),
    )
    learned(strict, judgments())
    first, second = strict.candidate(), strict.candidate()
    assert (first.report.reason, first.dropped) == ("auroc", False)
    assert second.weights == first.weights
    assert second.dropped
    assert len(strict.replay) > 30
    untrained = Learner("default", load_base(), shared_encoder(), TrainerConfig(steps=2))
    assert strict.candidate().weights == untrained.candidate().weights


def test_an_unsound_candidate_is_dropped_at_once() -> None:
    tight = Learner("default", load_base(), shared_encoder(), gate=GateConfig(smallest_spectral_bound=0.0))
    learned(tight, judgments()[:60])
    candidate = tight.candidate()
    assert (candidate.report.reason, candidate.dropped) == ("spectral_norm", True)


def test_restored_sessions_are_rehearsed_but_not_learned_again() -> None:
    restarted = learner()
    restarted.restore((judgment, NOWHERE) for judgment in judgments()[:40])
    assert restarted.waiting == ()
    assert offer(restarted, judgments()[:40]) == 0
    assert len(restarted.replay) > 20


def test_agents_take_turns_and_a_flood_waits() -> None:
    flooded = learner(agent_backlog=20)
    flood = [as_agent("loud", judgment) for judgment in judgments()[:100]]
    quiet = [as_agent(f"quiet-{number}", judgment) for number, judgment in enumerate(judgments()[100:130])]
    taken = offer(flooded, [*quiet[:1], *flood])
    assert 20 <= taken < 45  # the held-out ones do not wait
    offer(flooded, quiet[1:])
    flooded.update(0.0)
    loud = {judgment.trajectory.id for judgment in flood}
    assert len(flooded.waiting) > 10 and loud.issuperset(flooded.waiting)


def test_an_agent_alone_is_not_held_back() -> None:
    alone = learner(agent_backlog=5)
    assert offer(alone, [as_agent("only", judgment) for judgment in judgments()[:50]]) == 50


def as_agent(agent: str, judgment: Judgment) -> Judgment:
    return replace(judgment, trajectory=replace(judgment.trajectory, agent=agent))
