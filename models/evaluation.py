"""How well a network foresees failing steps: the figures that the gate decides by and that model cards show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fleetlore.network import PolicyNetwork
from models.episodes import UNLABELLED, Episode, collate

CHUNK = 64


@dataclass(frozen=True, slots=True)
class Predictions:
    """P(fails) and whether it did, of n labelled steps, with each step's tool."""

    probability: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    tools: npt.NDArray[np.str_]

    def of_tool(self, tool: str) -> Predictions:
        """Only the steps of one tool."""
        mine = self.tools == tool
        return Predictions(self.probability[mine], self.failed[mine], self.tools[mine])

    @property
    def cross_entropy(self) -> float:
        """Mean binary cross-entropy in nats; NaN without steps."""
        p = np.clip(self.probability, 1e-6, 1 - 1e-6)
        return float(-np.mean(np.where(self.failed, np.log(p), np.log(1 - p)))) if len(p) else float("nan")

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the recalls of both outcomes at P > .5; NaN unless both occur."""
        if not self.failed.any() or self.failed.all():
            return float("nan")
        warned = self.probability > 0.5
        return float((warned[self.failed].mean() + (~warned[~self.failed]).mean()) / 2)

    @property
    def auroc(self) -> float:
        """Chance that a failing step is ranked above a working one (Mann-Whitney); NaN unless both occur."""
        positives = int(self.failed.sum())
        negatives = len(self.failed) - positives
        if not positives or not negatives:
            return float("nan")
        _, place, count = np.unique(self.probability, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[place]
        return float((ranks[self.failed].sum() - positives * (positives + 1) / 2) / (positives * negatives))

    @property
    def tool_counts(self) -> dict[str, int]:
        """Labelled steps of each tool."""
        counts: dict[str, int] = defaultdict(int)
        for tool in self.tools.tolist():
            counts[tool] += 1
        return dict(counts)


def predict(network: PolicyNetwork, episodes: Sequence[Episode]) -> Predictions:
    """Let the network foresee every labelled step of the episodes."""
    probabilities: list[npt.NDArray[np.float64]] = []
    failed: list[npt.NDArray[np.bool_]] = []
    tools: list[str] = []
    for start in range(0, len(episodes), CHUNK):
        chunk = episodes[start : start + CHUNK]
        batch = collate(chunk)
        with torch.inference_mode():
            answers = torch.sigmoid(network(batch.vectors).step[:, 1::2])
        labelled = batch.failed != UNLABELLED
        probabilities.append(answers[labelled].double().numpy())
        failed.append(batch.failed[labelled].numpy() == 1)
        for episode in chunk:
            tools.extend(tool for tool, label in zip(episode.tools, episode.failed, strict=True) if label != UNLABELLED)
    return Predictions(
        np.concatenate(probabilities or [np.zeros(0)]),
        np.concatenate(failed or [np.zeros(0, dtype=np.bool_)]),
        np.array(tools, dtype=np.str_),
    )
