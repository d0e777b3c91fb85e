"""Train all weights of a base, with the losses of the online updates."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from fleetlore.risk.network import Base, RiskNetwork, base_from_bytes, base_to_bytes
from models.adapter.lora_trainer import batch_losses
from models.data.dataset import Example, collate

BATCH = 64
LEARNING_RATE = 2e-3
CONTRAST_WEIGHT = 0.3
TEMPERATURE = 0.1


def pretrain(examples: Sequence[Example], steps: int, *, seed: int, start: RiskNetwork | None = None) -> Base:
    """Take `steps` batches; on one thread the same examples, steps and seed give the same base.

    Args:
        start: the network to begin from, which stays as it is; random weights by default.
    """
    chance = random.Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = RiskNetwork()
    if start is not None:
        network.load_state_dict(start.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        batch = collate(chance.sample(list(examples), min(BATCH, len(examples))))
        step, session, contrast = batch_losses(network(batch.vectors), batch, TEMPERATURE)
        optimizer.zero_grad()
        (step + session + CONTRAST_WEIGHT * contrast).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return base_from_bytes(base_to_bytes(network))
