"""Summarise what a version knows: signatures of the failures it learned, and prototypes of its goals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fleetlore.risk.model import packed
from fleetlore.risk.network import RiskNetwork
from fleetlore.wire.adapter_manifest import FailureSignature, GoalPrototypes
from models.data.dataset import Example, collate
from models.promotion.metrics import CHUNK

MAX_SIGNATURES = 64
MAX_PROTOTYPES = 16
ROUNDS = 10
UNFAMILIAR_SHARE = 0.02

Floats = npt.NDArray[np.float32]


def signatures_of(network: RiskNetwork, examples: Sequence[Example]) -> tuple[FailureSignature, ...]:
    """Mean signature of each of the most frequent failure patterns; ties broken by id."""
    found: dict[tuple[str, str], list[Floats]] = defaultdict(list)
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        with torch.inference_mode():
            signatures = network(collate(chunk).vectors).signature[:, 1::2].numpy()
        for row, example in enumerate(chunk):
            for place, pattern in enumerate(example.patterns):
                if pattern and example.failed[place] == 1:
                    found[pattern, example.tools[place]].append(signatures[row, place])
    most = sorted(found, key=lambda each: (-len(found[each]), each))[:MAX_SIGNATURES]
    return tuple(FailureSignature(pattern, tool, packed(_unit(found[pattern, tool]))) for pattern, tool in most)


def goal_prototypes(examples: Sequence[Example]) -> GoalPrototypes:
    """Prototypes of the goals' vectors by spherical k-means, begun with the goals that lie farthest apart.

    The threshold of familiarity is measured by leaving kinds out: how similar is a goal to the other prototypes? The
    similarity to its own prototype would describe goals already seen in other words, and make new tasks of the same
    tools unfamiliar.
    """
    goals = np.unique(np.array([example.vectors[0] for example in examples], dtype=np.float32), axis=0)
    goals = goals[np.linalg.norm(goals, axis=1) > 0] if len(goals) else goals
    if not len(goals):
        return GoalPrototypes()
    prototypes = [_unit(list(goals))]
    while len(prototypes) < min(MAX_PROTOTYPES, len(goals)):
        nearest = (goals @ np.array(prototypes).T).max(axis=1)
        prototypes.append(goals[int(nearest.argmin())])
    for _ in range(ROUNDS):
        nearest = (goals @ np.array(prototypes).T).argmax(axis=1)
        prototypes = [
            _unit(list(goals[nearest == place])) if (nearest == place).any() else prototype
            for place, prototype in enumerate(prototypes)
        ]
    similarity = goals @ np.array(prototypes).T
    if len(prototypes) > 1:
        similarity[np.arange(len(goals)), similarity.argmax(axis=1)] = -1.0
    least = float(np.quantile(similarity.max(axis=1), UNFAMILIAR_SHARE))
    return GoalPrototypes(tuple(packed(prototype) for prototype in prototypes), round(least, 4))


def _unit(vectors: Sequence[Floats]) -> Floats:
    mean: Floats = np.mean(vectors, axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)
