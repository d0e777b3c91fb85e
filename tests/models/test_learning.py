"""Learning is real: on sessions that no version has seen, the adapter foresees failures that its base does not."""

from __future__ import annotations

import pytest

from benchmarks.pretrain import DOMAINS, UNSEEN_WORLD_SEEDS, WORLD_SEEDS, world_episodes
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from models.adapter.lora_trainer import ContrastiveTrainer
from models.data.replay_buffer import ReplayBuffer
from models.promotion.metrics import predict

AUROC_GAIN = 0.10
CROSS_ENTROPY_GAIN = 0.25
UPDATES = 8


@pytest.mark.parametrize("world_seed", [0, 1])
def test_an_adapter_beats_its_base_on_unseen_sessions(world_seed: int) -> None:
    base, encoder = load_base(), shared_encoder()
    examples = world_episodes(encoder, world_seed, UPDATES * 32)
    unseen = world_episodes(encoder, world_seed, 150, seed=99)
    trainer, replay = ContrastiveTrainer(base), ReplayBuffer(400)
    for update in range(UPDATES):
        new = examples[32 * update : 32 * (update + 1)]
        trainer.update(new, replay.draw(32, update))
        replay.add(new)
    before, after = predict(base.network, unseen), predict(trainer.network_of(trainer.weights()), unseen)
    assert after.auroc >= before.auroc + AUROC_GAIN
    assert after.cross_entropy <= before.cross_entropy - CROSS_ENTROPY_GAIN


def test_the_base_knows_nothing_of_the_worlds_that_others_use() -> None:
    assert not set(WORLD_SEEDS) & set(range(1000))
    assert not set(WORLD_SEEDS) & set(UNSEEN_WORLD_SEEDS)
    assert len(DOMAINS) == 4
