from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import safetensors.torch
import torch

from benchmarks.pretrain import world_episodes
from benchmarks.random_adapters import random_weights
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import RiskNetwork, adapter_shapes, load_base, merge_lora, read_adapter
from fleetlore.wire.adapter_manifest import State
from models.adapter.lora_trainer import ContrastiveTrainer
from models.data.dataset import Batch, Example, collate
from models.promotion.gate import GateConfig, PromotionGate, spectral_norm
from models.promotion.metrics import predict
from models.promotion.prequential import Prequential


@cache
def held_out() -> list[Example]:
    return world_episodes(shared_encoder(), 0, 60, seed=5)


@cache
def learned() -> bytes:
    trainer = ContrastiveTrainer(load_base())
    examples = world_episodes(shared_encoder(), 0, 128)
    for start in range(0, 128, 32):
        trainer.update(examples[start : start + 32], [])
    return trainer.weights()


def network_of(weights: bytes) -> RiskNetwork:
    return merge_lora(load_base().network, read_adapter(weights, 8), 2.0)


def gate(**bars: float) -> PromotionGate:
    return PromotionGate(load_base().network, 8, 2.0, GateConfig(**bars))  # type: ignore[arg-type]


def test_what_learned_something_passes() -> None:
    report = gate().decide(learned(), None, held_out(), 1)
    assert report.passed
    assert report.figures["auroc"] > report.figures["running_auroc"]
    assert report.tools


def test_what_knows_nothing_does_not_replace_what_does() -> None:
    assert gate().decide(random_weights(1, size=0.1), learned(), held_out(), 1).reason == "balanced_accuracy"


def test_a_version_that_overlooks_failures_is_refused() -> None:
    """Its overall error may fall while it calls failures safe, so recall has a bar of its own."""
    report = gate(balanced_accuracy_margin=9, recall_margin=-0.5).decide(learned(), learned(), held_out(), 1)
    assert report.reason == "recall"


def test_a_version_that_forgot_one_slice_is_refused() -> None:
    whole = held_out()
    tool = max(
        {tool for e in whole for tool in e.tools},
        key=lambda t: sum((np.array(e.tools) == t) @ (e.failed == 1) for e in whole),
    )
    taught = [replace(e, failed=np.where(np.array(e.tools) == tool, 0, e.failed).astype(np.int8)) for e in whole]
    liar = ContrastiveTrainer(load_base())
    liar.resume(learned())
    for start in range(0, len(taught), 32):
        liar.update(taught[start : start + 32], [])
    report = gate(balanced_accuracy_margin=9, recall_margin=0.5).decide(liar.weights(), learned(), whole, 1)
    assert report.reason == "slice_recall"
    assert min(report.slices, key=lambda name: report.slices[name][1] - report.slices[name][0]).startswith(tool)


def test_the_version_itself_is_not_better_than_itself() -> None:
    assert gate().decide(learned(), learned(), held_out(), 1).reason == "no_gain"


def test_with_evidence_of_a_gain_and_no_harm_it_passes() -> None:
    evidence = Prequential(0.05)
    before, after = predict(load_base().network, held_out()), predict(network_of(learned()), held_out())
    evidence.observe(held_out(), after, before)
    report = gate().decide(learned(), learned(), held_out(), 1, evidence)
    assert report.passed
    assert report.figures["log_evidence"] > report.figures["log_evidence_needed"]
    assert report.figures["evidence_sessions"] == 60
    assert report.figures["gain"] > 0


def test_evidence_of_a_gain_does_not_excuse_harm() -> None:
    evidence = Prequential(0.05)
    before, after = predict(load_base().network, held_out()), predict(network_of(learned()), held_out())
    evidence.observe(held_out(), after, before)
    worse = random_weights(1, size=0.1)
    assert gate().decide(worse, learned(), held_out(), 1, evidence).reason == "balanced_accuracy"


def test_a_first_version_needs_no_evidence_of_a_gain() -> None:
    few = held_out()[:8]
    report = gate(minimum_steps=10, minimum_failures=2).decide(learned(), None, few, 1)
    assert report.figures["log_evidence"] < report.figures["log_evidence_needed"]
    assert report.passed


def test_a_first_version_must_rank_at_least_as_well_as_the_bare_base() -> None:
    assert gate().decide(random_weights(1, size=0.1), None, held_out(), 1).reason == "auroc"


def test_too_few_sessions_decide_nothing() -> None:
    report = gate().decide(learned(), None, held_out()[:3], 1)
    assert report.reason == "too_few"
    assert gate().decide(learned(), None, [], 1).reason == "too_few"


def test_what_changes_nothing_is_refused() -> None:
    idle = {name: torch.zeros(shape).half() for name, shape in adapter_shapes(8).items()}
    assert gate().decide(bytes(safetensors.torch.save(idle)), None, held_out(), 1).reason == "no_effect"


def test_a_huge_change_is_refused() -> None:
    assert gate().decide(random_weights(1, size=2.0), None, held_out(), 1).reason == "spectral_norm"


def test_what_is_not_finite_is_refused() -> None:
    broken = read_adapter(learned(), 8)
    next(iter(broken.values()))[0, 0] = float("nan")
    assert gate().decide(bytes(safetensors.torch.save(broken)), None, held_out(), 1).reason == "not_finite"


def test_what_is_no_adapter_is_refused() -> None:
    assert gate().decide(b"junk", None, held_out(), 1).reason == "structure"


def test_a_tool_is_judged_only_with_evidence() -> None:
    tools = gate(tool_steps=1, tool_auroc=0.0).decide(learned(), None, held_out(), 1).tools
    assert set(gate(tool_steps=30).decide(learned(), None, held_out(), 1).tools) < set(tools)
    assert gate(tool_steps=10_000).decide(learned(), None, held_out(), 1).tools == ()


def test_a_tool_that_was_judged_is_so_until_its_steps_speak_against_it() -> None:
    few = gate(tool_steps=10_000).decide(learned(), None, held_out(), 1, judged=["shown-before"])
    assert few.tools == ("shown-before",)
    shown = gate(tool_steps=1).decide(learned(), None, held_out(), 1).tools
    assert (
        gate(tool_steps=1, tool_auroc=2, tool_auroc_lost=0.0).decide(learned(), None, held_out(), 1, judged=shown).tools
        == shown
    )
    lost = (
        gate(tool_steps=1, tool_auroc=2, tool_auroc_lost=2).decide(learned(), None, held_out(), 1, judged=shown).tools
    )
    assert set(lost) < set(shown)


def test_what_runs_reads_held_out_sessions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(examples: Sequence[Example]) -> Batch:
        read.append(len(examples))
        return collate(examples)

    monkeypatch.setattr("models.promotion.metrics.collate", counted)
    ours, sessions = gate(), held_out()
    first = ours.decide(learned(), None, sessions[:-5], 1)
    assert sum(read) == 2 * (len(sessions) - 5)
    ours.decide(learned(), None, sessions, 1)
    assert sum(read) == 2 * len(sessions)
    assert ours.decide(learned(), None, sessions[:-5], 1).figures == first.figures


def test_the_spectral_norm_is_the_dense_one() -> None:
    tensors = read_adapter(random_weights(3), 8)
    dense = max(
        float(torch.linalg.matrix_norm(2.0 * tensors[name.replace("_A", "_B")].float() @ tensors[name].float(), ord=2))
        for name in tensors
        if "lora_A" in name
    )
    assert spectral_norm(tensors, 2.0) == pytest.approx(dense, rel=1e-4)


def test_a_version_that_adds_to_the_call_model_elsewhere_need_only_be_harmless() -> None:
    (tool, *_) = gate().decide(learned(), learned(), held_out(), 1).tools
    here: tuple[str, State] = (tool, "after_failure")
    assert gate().decide(learned(), learned(), held_out(), 1, speaks={here}).passed
    assert (
        gate().decide(learned(), learned(), held_out(), 1, spoke={here}).passed
    )  # it no longer does: agents must know
    for speaks, spoke in (({here}, {here}), ({("unknown", here[1])}, set[tuple[str, State]]())):
        assert gate().decide(learned(), learned(), held_out(), 1, speaks=speaks, spoke=spoke).reason == "no_gain"
    beginner = ContrastiveTrainer(load_base())
    beginner.update(held_out()[:4], [])
    harmed = gate().decide(beginner.weights(), learned(), held_out(), 1, speaks={here})
    assert harmed.reason in ("balanced_accuracy", "recall")
