"""Measure how well a network predicts failing steps: the figures of the gate and of model cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from fleetlore.risk.network import RiskNetwork
from models.data.auroc import auroc
from models.data.dataset import UNLABELLED, Example, collate

CHUNK = 64


@dataclass(frozen=True, slots=True)
class Predictions:
    """P(fails) and outcome of n labelled steps, with each step's tool, session number and domain."""

    probability: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    tools: npt.NDArray[np.str_]
    sessions: npt.NDArray[np.int64]
    domains: npt.NDArray[np.str_]

    def of_tool(self, tool: str) -> Predictions:
        """Only the steps of one tool."""
        return self.where(self.tools == tool)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Predictions:
        """Only some steps."""
        return Predictions(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def first(self, steps: int) -> Predictions:
        """Only the first steps."""
        return Predictions(*(getattr(self, f.name)[:steps] for f in fields(self)))

    @property
    def squared_error(self) -> npt.NDArray[np.float64]:
        """Brier score of each step."""
        return np.square(self.probability - self.failed)

    def by_session(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Mean of a value over the steps of each session, in the order of session numbers."""
        _, place = np.unique(self.sessions, return_inverse=True)
        return np.bincount(place, weights=values) / np.bincount(place)

    @property
    def calibration_error(self) -> float:
        """Expected calibration error over ten equal bins (Naeini et al. 2015); NaN without steps."""
        if not len(self.probability):
            return float("nan")
        bins = np.minimum((self.probability * 10).astype(np.int64), 9)
        gaps = np.bincount(bins, weights=self.probability - self.failed, minlength=10)
        return float(np.abs(gaps).sum() / len(bins))

    @property
    def recall(self) -> float:
        """Share of the failures with P > .5; NaN without one."""
        return float((self.probability[self.failed] > 0.5).mean()) if self.failed.any() else float("nan")

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
        """Probability that a failing step ranks above a working one; NaN unless both occur."""
        found = auroc(self.probability, self.failed)
        return float("nan") if found is None else found

    @property
    def tool_counts(self) -> dict[str, int]:
        """Labelled steps of each tool."""
        counts: dict[str, int] = defaultdict(int)
        for tool in self.tools.tolist():
            counts[tool] += 1
        return dict(counts)


def predict(network: RiskNetwork, examples: Sequence[Example]) -> Predictions:
    """Predict every labelled step of the examples."""
    return Foresight(network).predict(examples)


class Foresight:
    """Cached predictions of one network: candidates are compared with it on the same held-out sessions."""

    def __init__(self, network: RiskNetwork) -> None:
        self._network = network
        self._known: dict[str, npt.NDArray[np.float64]] = {}  # (steps, 2): P(fails), P(ineffective)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Like `predict`; the cache then holds these examples only."""
        self._read(examples)
        return self._of([(example, example.failed, self._known[example.key][:, 0]) for example in examples])

    def predict_ineffective(self, examples: Sequence[Example]) -> Predictions:
        """The same of P(ineffective) where it is labelled: `failed` of the result means ineffective."""
        self._read(examples)
        return self._of([(e, e.ineffective, self._known[e.key][:, 1]) for e in examples if len(e.ineffective)])

    def _read(self, examples: Sequence[Example]) -> None:
        self._known = {example.key: self._known[example.key] for example in examples if example.key in self._known}
        unknown = [example for example in examples if example.key not in self._known]
        for start in range(0, len(unknown), CHUNK):
            chunk = unknown[start : start + CHUNK]
            with torch.inference_mode():
                reading = self._network(collate(chunk).vectors)
                logits = torch.stack([reading.step[:, 1::2], reading.session[:, 1::2]], dim=-1)
                answers = torch.sigmoid(logits).double().numpy()
            for row, example in enumerate(chunk):
                self._known[example.key] = answers[row, : len(example.failed)]

    def _of(self, answered: Sequence[tuple[Example, npt.NDArray[np.int8], npt.NDArray[np.float64]]]) -> Predictions:
        tools: list[str] = []
        sessions: list[int] = []
        domains: list[str] = []
        numbers: dict[str, int] = {}
        chances, outcomes = [np.zeros(0)], [np.zeros(0, dtype=np.bool_)]
        for example, labels, answers in answered:
            places = labels != UNLABELLED
            chances.append(answers[places])
            outcomes.append(labels[places] == 1)
            labelled = [tool for tool, label in zip(example.tools, labels, strict=True) if label != UNLABELLED]
            tools.extend(labelled)
            # The windows of one session share its number: they are not independent.
            sessions.extend([numbers.setdefault(example.session, len(numbers))] * len(labelled))
            domains.extend([example.domain] * len(labelled))
        return Predictions(
            np.concatenate(chances),
            np.concatenate(outcomes),
            np.array(tools, dtype=np.str_),
            np.array(sessions, dtype=np.int64),
            np.array(domains, dtype=np.str_),
        )
