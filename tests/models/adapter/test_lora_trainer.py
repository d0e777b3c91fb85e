from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch

from benchmarks.pretrain import world_episodes
from benchmarks.random_adapters import random_weights
from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import Reading, base_to_bytes, load_base, read_adapter
from fleetlore.wire.adapter_manifest import Place
from models.adapter.lora_trainer import ContrastiveTrainer, TrainerConfig, pair_loss, supervised_contrast
from models.data.dataset import Batch, Example


@cache
def examples() -> list[Example]:
    return world_episodes(shared_encoder(), 0, 40)


def trained(new: list[Example], old: list[Example], **config: int) -> ContrastiveTrainer:
    trainer = ContrastiveTrainer(load_base(), TrainerConfig(**config))
    trainer.update(new, old)
    return trainer


def test_the_fold_gives_what_peft_gives() -> None:
    trainer = trained(examples()[:16], [], steps=2)
    vectors = torch.randn(3, 11, 256, generator=torch.Generator().manual_seed(0)) / 16
    # The published weights are half precision, so peft is given the same ones.
    trainer.resume(trainer.weights())
    with torch.inference_mode():
        by_peft = trainer._model(vectors)
        by_fold = trainer.network_of(trainer.weights())(vectors)
        merged = trainer._model.merge_and_unload()(vectors)
    assert torch.allclose(by_peft.step, by_fold.step, atol=1e-5)
    assert torch.allclose(merged.step, by_fold.step, atol=1e-5)
    assert torch.allclose(by_peft.signature, by_fold.signature, atol=1e-5)


def test_an_update_is_a_function_of_data_and_seed() -> None:
    new, old = examples()[:16], examples()[16:24]
    first = trained(new, old, steps=2).weights()
    torch.rand(7)  # the global generator moves on; an update must not notice
    assert trained(new[::-1], old[::-1], steps=2).weights() == first
    assert trained(new, old, steps=2, seed=1).weights() != first
    assert trained(new[1:], old, steps=2).weights() != first


def test_training_leaves_the_base_and_torchs_generator_alone() -> None:
    before = base_to_bytes(load_base().network)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    trained(examples()[:8], [], steps=1)
    assert torch.rand(1) == expected
    assert base_to_bytes(load_base().network) == before


def test_an_untrained_adapter_changes_nothing() -> None:
    trainer = ContrastiveTrainer(load_base())
    vectors = torch.randn(1, 5, 256) / 16
    with torch.inference_mode():
        assert torch.equal(trainer.network_of(trainer.weights())(vectors).step, load_base().network(vectors).step)


def test_losses_fall() -> None:
    trainer = ContrastiveTrainer(load_base(), TrainerConfig(steps=4))
    first = trainer.update(examples(), [])
    for _ in range(3):
        last = trainer.update(examples(), [])
    assert last.step < 0.8 * first.step
    assert last.contrast < first.contrast


def test_what_is_in_vain_is_learned() -> None:
    trainer = ContrastiveTrainer(load_base(), TrainerConfig(steps=4))
    first = trainer.update(examples(), [])
    for _ in range(4):
        last = trainer.update(examples(), [])
    assert last.ineffective < 0.8 * first.ineffective


def read(odds: list[list[float]], failed: list[list[int]], weight: list[float]) -> tuple[Reading, Batch]:
    """Calls with these log odds, between tokens of outcomes that no loss of calls may read."""
    step = torch.full((len(odds), 2 * len(odds[0]) + 1), 99.0)
    step[:, 1::2] = torch.tensor(odds)
    unused = torch.zeros(0)
    batch = Batch(unused, torch.tensor(failed), unused, unused, unused, torch.tensor(weight), unused)
    return Reading(step, unused, unused), batch


def test_a_pair_is_a_failure_and_a_success_from_the_same_state_and_weighs_what_both_weigh() -> None:
    # First calls: one failed (0.5), two worked (2.0 of weight 1, -1.0 of weight 3). The second ones have no rival:
    # two worked after a success, and what comes after a failure has no label.
    reading, batch = read([[0.5, 4.0], [2.0, 5.0], [-1.0, 6.0]], [[1, -1], [0, 0], [0, 0]], [1.0, 1.0, 3.0])
    by_hand = (1 * math.log1p(math.exp(1.5)) + 3 * math.log1p(math.exp(-1.5))) / 4 / 3
    assert float(pair_loss(reading, batch)) == pytest.approx(by_hand)
    none, batch = read([[0.5], [2.0]], [[0], [0]], [1.0, 1.0])
    assert float(pair_loss(none, batch)) == 0.0


def test_pairs_rank_failures_above_successes() -> None:
    last = []
    for weight in (0.0, 1.0):
        trainer = ContrastiveTrainer(load_base(), TrainerConfig(steps=4, pair_weight=weight))
        for _ in range(3):
            losses = trainer.update(examples(), [])
        last.append(losses.pairs)
    assert last[1] < last[0]


def test_long_sessions_are_read_in_as_many_more_steps() -> None:
    assert [TrainerConfig().steps_of(later) for later in (0, 1, 4, 384)] == [7, 8, 10, 295]
    trainer = ContrastiveTrainer(load_base(), TrainerConfig(steps=2))
    short = [example for example in examples()[:12] if example.place.window < 2]
    assert trainer.update(short, []).steps == 2
    long = [replace(example, place=Place(0, 0, 0, window)) for window, example in enumerate(short[:10])]
    assert trainer.update(long, []).steps == 8


def test_distillation_holds_rehearsed_sessions_to_the_published_version() -> None:
    distances = []
    for weight in (0.0, 5.0):
        trainer = ContrastiveTrainer(load_base(), TrainerConfig(steps=3, distillation_weight=weight))
        trainer.resume(random_weights(1, size=0.05))
        for _ in range(3):
            losses = trainer.update(examples()[:16], examples()[16:])
        distances.append(losses.distillation)
    assert distances[1] < 0.5 * distances[0]


def test_training_continues_from_a_published_version() -> None:
    published = trained(examples()[:16], [], steps=2).weights()
    trainer = ContrastiveTrainer(load_base(), TrainerConfig(seed=9))
    trainer.resume(published)
    assert trainer.weights() == published


def test_only_an_adapter_can_be_resumed() -> None:
    with pytest.raises(AdapterRefused):
        ContrastiveTrainer(load_base()).resume(base_to_bytes(load_base().network))


def test_what_is_published_passes_the_agents_checks() -> None:
    assert len(read_adapter(trained(examples()[:8], [], steps=1).weights(), 8)) == 24


def test_supervised_contrast_by_hand() -> None:
    signatures = torch.eye(2)[[0, 0, 1]]
    value = supervised_contrast(signatures, torch.tensor([4, 4, 7]), temperature=1.0)
    # Anchors 0 and 1 have each other as positive (cosine 1) and one other (cosine 0); anchor 2 has none.
    assert value.item() == pytest.approx(-torch.log(torch.e ** torch.tensor(1.0) / (torch.e + 1)).item(), abs=1e-6)


def test_contrast_without_a_pair_is_zero() -> None:
    assert supervised_contrast(torch.eye(3), torch.tensor([1, 2, 3]), 0.1).item() == 0
