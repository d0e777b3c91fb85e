from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from msgspec import structs

from benchmarks.pretrain import world_judgments
from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from fleetlore.wire.adapter_manifest import Place, ProceduralManifest
from fleetlore.wire.trajectory import Judgment
from models.adapter.admission import Cadence
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig, version_of
from models.adapter.reproduce import reproduce
from models.promotion.gate import GateConfig

EASY = GateConfig(
    minimum_steps=1,
    minimum_failures=1,
    false_promotions=1e9,
    balanced_accuracy_margin=1,
    recall_margin=1,
    auroc_margin=1,
)


@cache
def log() -> dict[Place, Judgment]:
    """Judgments where they lie: three a record, two partitions."""
    return {Place(n % 2, n // 6, n // 2 % 3): judgment for n, judgment in enumerate(world_judgments(0, 110))}


@cache
def lineage() -> list[tuple[bytes, ProceduralManifest]]:
    """Two versions, the second made of the first, which is made of one update, by two."""
    torch.set_num_threads(1)
    learner = Learner(
        "default",
        load_base(),
        shared_encoder(),
        TrainerConfig(steps=2, new_sessions=16, replayed_sessions=12),
        Cadence(updates_per_candidate=2),
        EASY,
    )
    found = []
    for place, judgment in log().items():
        learner.offer(judgment, 0.0, place)
        if learner.update_due(0.0):
            learner.update(0.0)
        if learner.candidate_due(0.0):
            candidate = learner.candidate()
            manifest = learner.manifest(candidate, len(found) + 1, (), 0.0)
            learner.resume(candidate.weights, manifest)
            found.append((candidate.weights, manifest))
    return found


def again(manifest: ProceduralManifest, parent: bytes | None) -> bytes:
    return reproduce(manifest, parent, log(), load_base(), shared_encoder())


def test_a_version_comes_out_again_to_the_byte() -> None:
    (first_weights, first), (second_weights, second) = lineage()[:2]
    assert (len(first.batches), len(second.batches)) == (1, 2) and second.parent == first.version
    assert second.batches[1].rehearsed
    assert again(first, None) == first_weights
    assert again(second, first_weights) == second_weights


def test_another_batch_order_parent_or_setting_gives_another_version() -> None:
    (first_weights, _), (_, second) = lineage()[:2]
    batches = second.batches
    for changed, parent in (
        (structs.replace(second, batches=batches[::-1]), first_weights),
        (structs.replace(second, batches=(replace(batches[0], new=batches[0].new[1:]), *batches[1:])), first_weights),
        (structs.replace(second, training={**second.training, "seed": 5}), first_weights),
        (second, None),
    ):
        assert version_of(again(changed, parent)) != second.version


def test_a_manifest_that_does_not_say_how_it_was_made_is_refused() -> None:
    _, manifest = lineage()[0]
    changes: tuple[dict[str, Any], ...] = ({"batches": ()}, {"training": {}}, {"base_sha256": "0" * 64})
    for change in changes:
        with pytest.raises(AdapterRefused, match="foreign"):
            again(structs.replace(manifest, **change), None)


def test_no_agent_has_too_much_weight_in_any_batch_that_a_manifest_names() -> None:
    """What the manifest names is enough to check the influence from outside."""
    from collections import defaultdict

    from models.data.dataset import examples_of
    from models.data.sample_weights import sample_weights

    for _, manifest in lineage():
        for batch in manifest.batches:
            examples = [examples_of(log()[p._replace(window=0)], shared_encoder())[p.window] for p in batch.places]
            share: dict[str, float] = defaultdict(float)
            for example, weight in zip(examples, sample_weights(examples), strict=True):
                share[example.agent] += weight * float((example.failed >= 0).sum())
            assert max(share.values()) / sum(share.values()) <= max(0.05, 1 / len(share)) + 1e-9
