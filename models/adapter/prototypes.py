"""What a version knows its way by: signatures of the failures it learned, and the kinds of goals it learned from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fleetlore.risk.model import packed
from fleetlore.risk.network import RiskNetwork
from fleetlore.wire.adapter_manifest import FailureSignature, Familiar
from models.data.dataset import Example, collate
from models.promotion.metrics import CHUNK

MOST_SIGNATURES = 64
MOST_CENTRES = 16
ROUNDS = 10
UNFAMILIAR_SHARE = 0.02

Floats = npt.NDArray[np.float32]


def signatures_of(network: RiskNetwork, episodes: Sequence[Example]) -> tuple[FailureSignature, ...]:
    """Mean signature of each failure pattern, of those that most steps failed with; ties broken by id."""
    found: dict[tuple[str, str], list[Floats]] = defaultdict(list)
    for start in range(0, len(episodes), CHUNK):
        chunk = episodes[start : start + CHUNK]
        with torch.inference_mode():
            signatures = network(collate(chunk).vectors).signature[:, 1::2].numpy()
        for row, episode in enumerate(chunk):
            for place, pattern in enumerate(episode.patterns):
                if pattern and episode.failed[place] == 1:
                    found[pattern, episode.tools[place]].append(signatures[row, place])
    most = sorted(found, key=lambda each: (-len(found[each]), each))[:MOST_SIGNATURES]
    return tuple(FailureSignature(pattern, tool, packed(_unit(found[pattern, tool]))) for pattern, tool in most)


def familiar_goals(episodes: Sequence[Example]) -> Familiar:
    """Centres of the goals' vectors by spherical k-means, begun with the goals that lie farthest apart.

    What is another kind of goal is told by leaving kinds out: how near would those that were learned be, had their own kind not been learned?
    Distances to their own centres would say that of goals already seen in other words, and a new task of the same tools would be strange.
    """
    goals = np.unique(np.array([episode.vectors[0] for episode in episodes], dtype=np.float32), axis=0)
    goals = goals[np.linalg.norm(goals, axis=1) > 0] if len(goals) else goals
    if not len(goals):
        return Familiar()
    centres = [_unit(list(goals))]
    while len(centres) < min(MOST_CENTRES, len(goals)):
        nearest = (goals @ np.array(centres).T).max(axis=1)
        centres.append(goals[int(nearest.argmin())])
    for _ in range(ROUNDS):
        nearest = (goals @ np.array(centres).T).argmax(axis=1)
        centres = [
            _unit(list(goals[nearest == place])) if (nearest == place).any() else centre
            for place, centre in enumerate(centres)
        ]
    likeness = goals @ np.array(centres).T
    if len(centres) > 1:
        likeness[np.arange(len(goals)), likeness.argmax(axis=1)] = -1.0
    least = float(np.quantile(likeness.max(axis=1), UNFAMILIAR_SHARE))
    return Familiar(tuple(packed(centre) for centre in centres), round(least, 4))


def _unit(vectors: Sequence[Floats]) -> Floats:
    mean: Floats = np.mean(vectors, axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)
