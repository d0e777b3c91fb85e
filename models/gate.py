"""The promotion gate: what a candidate adapter must show on held-out sessions before any agent gets it.

It fails closed: a candidate that cannot be measured is not promoted. The order is from cheap to dear: structure, size of
the change, probe, then held-out sessions against the version that runs now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fleetlore.errors import AdapterRefused
from fleetlore.network import BLOCKS, LORA_TARGETS, PolicyNetwork, adapter_key, fold, probe_answers, read_adapter
from models.episodes import Episode
from models.evaluation import Predictions, predict


@dataclass(frozen=True, slots=True)
class GateConfig:
    """The bars. Figures of the candidate are compared with those of the running version on the same sessions.

    Attributes:
        auroc_margin: of a first version, which is measured against the bare base.
        smallest_spectral_bound: a change of a weight matrix up to this largest singular value always passes (healthy
            adapters stay under 6); above it, `spectral_factor` times the running version's is the bound.
        tool_steps, tool_auroc: what a tool must show to be one that the version may judge.
    """

    minimum_steps: int = 60
    minimum_failures: int = 8
    balanced_accuracy_margin: float = 0.01
    cross_entropy_margin: float = 0.02
    recall_margin: float = 0.05
    auroc_margin: float = 0.0
    smallest_spectral_bound: float = 8.0
    spectral_factor: float = 3.0
    tool_steps: int = 8
    tool_auroc: float = 0.75


@dataclass(frozen=True, slots=True)
class GateReport:
    """The decision. `reason` is `passed`, or one of a bounded set of words; `too_few` means: ask again with more.

    tools: those the candidate may judge, by what it showed on held-out steps.
    """

    reason: str
    figures: dict[str, float] = field(default_factory=dict)
    tools: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.reason == "passed"

    @property
    def measured(self) -> bool:
        """Whether it came as far as the held-out sessions; if not, it is unsound and more learning will not mend it."""
        return "cross_entropy" in self.figures


class PromotionGate:
    """Compares a candidate with the running version over one base."""

    def __init__(self, base: PolicyNetwork, rank: int, scale: float, config: GateConfig | None = None) -> None:
        self.config = config or GateConfig()
        self._base = base
        self._rank = rank
        self._scale = scale

    def decide(
        self, candidate: bytes, running: bytes | None, held_out: Sequence[Episode], probe_seed: int
    ) -> GateReport:
        """Measure `candidate` against `running` (None: the bare base) on sessions that neither has learned from."""
        bars = self.config
        try:
            tensors = read_adapter(candidate, self._rank)
        except AdapterRefused as refusal:
            return GateReport(refusal.reason)
        figures = {"spectral_norm": spectral_norm(tensors, self._scale)}
        before = read_adapter(running, self._rank) if running is not None else None
        usual = spectral_norm(before, self._scale) if before is not None else 0.0
        if figures["spectral_norm"] > max(bars.smallest_spectral_bound, bars.spectral_factor * usual):
            return GateReport("spectral_norm", figures)
        network = fold(self._base, tensors, self._scale)
        if probe_answers(network, probe_seed) == probe_answers(self._base, probe_seed):
            return GateReport("no_effect", figures)

        now = predict(network, held_out)
        figures |= {"held_out_steps": float(len(now.failed)), "held_out_failures": float(now.failed.sum())}
        working = len(now.failed) - int(now.failed.sum())
        if len(now.failed) < bars.minimum_steps or min(int(now.failed.sum()), working) < bars.minimum_failures:
            return GateReport("too_few", figures)
        rival = predict(fold(self._base, before, self._scale) if before is not None else self._base, held_out)
        for name, predictions in (("", now), ("running_", rival)):
            figures |= {
                f"{name}auroc": predictions.auroc,
                f"{name}balanced_accuracy": predictions.balanced_accuracy,
                f"{name}cross_entropy": predictions.cross_entropy,
                f"{name}recall": _recall(predictions),
            }
        figures = {name: round(value, 6) for name, value in figures.items()}
        return GateReport(self._verdict(figures, running is not None), figures, self._judged_tools(now))

    def _verdict(self, figures: Mapping[str, float], in_service: bool) -> str:
        # `not (a >= b)` and not `a < b`: a NaN must fail.
        bars = self.config
        if not figures["cross_entropy"] <= figures["running_cross_entropy"] + bars.cross_entropy_margin:
            return "cross_entropy"
        if not in_service:
            # The bare base warns of everything it has not seen, and nobody runs it: its order counts, its alarms do not.
            return "passed" if figures["auroc"] >= figures["running_auroc"] - bars.auroc_margin else "auroc"
        if not figures["balanced_accuracy"] >= figures["running_balanced_accuracy"] - bars.balanced_accuracy_margin:
            return "balanced_accuracy"
        # Overall figures can rise while failures are called safe: that is what poisoned labels look like.
        if not figures["recall"] >= figures["running_recall"] - bars.recall_margin:
            return "recall"
        return "passed"

    def _judged_tools(self, predictions: Predictions) -> tuple[str, ...]:
        judged = []
        for tool, count in sorted(predictions.tool_counts.items()):
            auroc = predictions.of_tool(tool).auroc
            # One outcome only: nothing to rank, so nothing speaks against its rate.
            if count >= self.config.tool_steps and (math.isnan(auroc) or auroc >= self.config.tool_auroc):
                judged.append(tool)
        return tuple(judged)


def spectral_norm(tensors: Mapping[str, Tensor], scale: float) -> float:
    """Largest singular value of any change scale * B @ A, by QR of the factors: 0.6 ms where the dense way takes 457."""
    largest = 0.0
    for block in range(BLOCKS):
        for target in LORA_TARGETS:
            a, b = (tensors[adapter_key(block, target, factor)].float() for factor in "AB")
            inner = torch.linalg.qr(b, mode="r").R @ torch.linalg.qr(a.T, mode="r").R.T
            largest = max(largest, scale * float(torch.linalg.matrix_norm(inner, ord=2)))
    return largest


def _recall(predictions: Predictions) -> float:
    return float((predictions.probability[predictions.failed] > 0.5).mean())
