"""A trainer process for tests: settings from the environment, and a gate that nearly everything passes."""

from __future__ import annotations

import asyncio

import torch

from fleetlore.config import Settings
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from fleetlore.wire.adapter_manifest import ProceduralManifest
from models.adapter.admission import Cadence
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig
from models.promotion.gate import GateConfig
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.training.trainer import TrainerRole

EASY = GateConfig(
    minimum_steps=20,
    minimum_failures=3,
    false_promotions=1e9,
    balanced_accuracy_margin=1.0,
    recall_margin=1.0,
    auroc_margin=1.0,
)


async def main() -> None:
    torch.set_num_threads(1)
    settings = Settings.from_env()
    learners = {
        tenant: Learner(
            tenant,
            load_base(),
            shared_encoder(),
            TrainerConfig(steps=2),
            Cadence(patience_seconds=0.2, updates_per_candidate=2),
            EASY,
        )
        for tenant in settings.tenants
    }
    async with AdapterPublisher.from_settings(ProceduralManifest, settings) as publisher:
        await TrainerRole(settings, learners, publisher, Metrics("trainer"), Readiness("broker")).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
