"""The promotion gate: what a candidate adapter must show on held-out sessions before any agent gets it.

It fails closed: a candidate that cannot be measured is not promoted. The order is from cheap to dear: structure, size of
the change, probe, then held-out sessions against the version that runs now: no slice may lose failures that it knew. Last, there must be
evidence of a gain, from all new sessions before they were learned (`models.promotion.prequential`). So a course of learning that is never better
than what runs replaces it with a chance of at most `false_promotions`, however many candidates it sends and however often they are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fleetlore.errors import AdapterRefused
from fleetlore.risk.network import (
    BLOCKS,
    LORA_TARGETS,
    RiskNetwork,
    adapter_key,
    merge_lora,
    probe_answers,
    read_adapter,
)
from models.data.dataset import Example
from models.promotion.e_process import log_wealth
from models.promotion.metrics import Foresight, Predictions
from models.promotion.prequential import Prequential


@dataclass(frozen=True, slots=True)
class GateConfig:
    """The bars. Figures of the candidate are compared with those of the running version on the same sessions.

    Attributes:
        false_promotions: the error budget of a course of learning: of all candidates between two fresh starts together.
        session_gain: of `models.promotion.prequential`.
        recall_margin: how much of the failures that the running version warns of may be lost, in any slice.
        harm: how sure it must be that a slice lost recall at all; an error here refuses a good candidate, no more.
        slice_failures: failures that make a slice (tool and domain) one of its own; smaller ones are pooled by tool, then all.
        auroc_margin: of a first version, which is measured against the bare base.
        smallest_spectral_bound: a change of a weight matrix up to this largest singular value always passes (healthy
            adapters stay under 6); above it, `spectral_factor` times the running version's is the bound.
        tool_steps, tool_auroc: what a tool must show to be one that the version may judge.
        tool_auroc_lost: below it, on as many steps, it is one no longer. Held-out steps of a tool grow few as other tools come, and an AUROC
            of a few steps wanders by .1 and more: what was shown once would be lost by chance.
    """

    minimum_steps: int = 60
    minimum_failures: int = 8
    false_promotions: float = 0.05
    session_gain: float = 0.05
    balanced_accuracy_margin: float = 0.01
    recall_margin: float = 0.05
    harm: float = 0.1
    slice_failures: int = 10
    auroc_margin: float = 0.0
    smallest_spectral_bound: float = 8.0
    spectral_factor: float = 3.0
    tool_steps: int = 8
    tool_auroc: float = 0.75
    tool_auroc_lost: float = 0.65


@dataclass(frozen=True, slots=True)
class GateReport:
    """The decision. `reason` is `passed`, or one of a bounded set of words.

    `too_few` and `no_gain` mean: ask again with more; the others that the candidate would do harm.
    tools: those the candidate may judge, by what it showed on held-out steps.
    ineffective_tools: those of which it may say whether a call is in vain, by the same bars.
    slices: recall of each slice before and after, for those that the gate looked at.
    """

    reason: str
    figures: dict[str, float] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    slices: dict[str, tuple[float, float]] = field(default_factory=dict)
    ineffective_tools: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.reason == "passed"

    @property
    def measured(self) -> bool:
        """Whether it came as far as the held-out sessions; if not, it is unsound and more learning will not mend it."""
        return "cross_entropy" in self.figures


class PromotionGate:
    """Compares a candidate with the running version over one base."""

    def __init__(self, base: RiskNetwork, rank: int, scale: float, config: GateConfig | None = None) -> None:
        self.config = config or GateConfig()
        self._base = base
        self._rank = rank
        self._scale = scale
        self._foreseen: dict[bytes | None, Foresight] = {}

    def decide(
        self,
        candidate: bytes,
        running: bytes | None,
        held_out: Sequence[Example],
        probe_seed: int,
        evidence: Prequential | None = None,
        judged: Collection[str] = (),
        judged_ineffective: Collection[str] = (),
    ) -> GateReport:
        """Measure `candidate` against `running` (None: the bare base) on sessions that neither has learned from.

        evidence: of the candidate's course of learning; without it, there is none of a gain.
        judged: tools that the running version may judge and whose rules are as they were: so may the candidate, unless it shows otherwise.
        judged_ineffective: the same of whether a call is in vain.
        """
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
        network = merge_lora(self._base, tensors, self._scale)
        if probe_answers(network, probe_seed) == probe_answers(self._base, probe_seed):
            return GateReport("no_effect", figures)

        mine, known = self._foreseen.get(candidate) or Foresight(network), self.foresight(running)
        self._foreseen = {candidate: mine, running: known}
        now = mine.predict(held_out)
        figures |= {"held_out_steps": float(len(now.failed)), "held_out_failures": float(now.failed.sum())}
        working = len(now.failed) - int(now.failed.sum())
        if len(now.failed) < bars.minimum_steps or min(int(now.failed.sum()), working) < bars.minimum_failures:
            return GateReport("too_few", figures)
        rival = known.predict(held_out)
        for name, predictions in (("", now), ("running_", rival)):
            figures |= {
                f"{name}auroc": predictions.auroc,
                f"{name}balanced_accuracy": predictions.balanced_accuracy,
                f"{name}cross_entropy": predictions.cross_entropy,
                f"{name}recall": predictions.recall,
                f"{name}calibration_error": predictions.calibration_error,
            }
        figures |= {
            "gain": evidence.gain if evidence else 0.0,
            "evidence_sessions": float(evidence.sessions) if evidence else 0.0,
            "log_evidence": evidence.log_evidence if evidence else 0.0,
            "log_evidence_needed": self._needed,
        }
        slices = dict(self._slices(now, rival))
        lost = [name for name, (drop, evidence, _, _) in slices.items() if self._harmed(drop, evidence)]
        figures |= {"slices": float(len(slices)), "slices_harmed": float(len(lost))}
        figures = {name: round(value, 6) for name, value in figures.items()}
        return GateReport(
            self._verdict(figures, running is not None),
            figures,
            self._judged_tools(now, judged),
            {name: (round(was, 4), round(is_, 4)) for name, (_, _, was, is_) in slices.items()},
            self._judged_tools(mine.predict_ineffective(held_out), judged_ineffective),
        )

    def foresight(self, version: bytes | None) -> Foresight:
        """Of a version by its weights (None: the bare base). What runs is measured against many candidates, and what was
        promoted runs next: neither reads the same sessions again."""
        known = self._foreseen.get(version)
        if known is not None:
            return known
        tensors = read_adapter(version, self._rank) if version is not None else None
        return Foresight(merge_lora(self._base, tensors, self._scale) if tensors is not None else self._base)

    @property
    def _needed(self) -> float:
        return -math.log(self.config.false_promotions)

    def evident(self, evidence: Prequential) -> bool:
        """Whether there is evidence enough of a gain; what is left to ask is whether there is harm."""
        return evidence.sessions > 0 and evidence.log_evidence >= self._needed

    def _verdict(self, figures: Mapping[str, float], in_service: bool) -> str:
        # `not (a >= b)` and not `a < b`: a NaN must fail.
        bars = self.config
        if not in_service:
            # The bare base warns of everything it has not seen, and nobody runs it: its order counts, its alarms do not. There is
            # nothing to spoil either: agents abstain without a version, and with one on all tools that it has not shown to judge.
            if not figures["auroc"] >= figures["running_auroc"] - bars.auroc_margin:
                return "auroc"
            return "passed"
        if not figures["balanced_accuracy"] >= figures["running_balanced_accuracy"] - bars.balanced_accuracy_margin:
            return "balanced_accuracy"
        # Overall figures can rise while failures are called safe: that is what poisoned labels look like.
        if not figures["recall"] >= figures["running_recall"] - bars.recall_margin:
            return "recall"
        if figures["slices_harmed"] > 0:
            return "slice_recall"
        return "passed" if figures["log_evidence"] >= figures["log_evidence_needed"] else "no_gain"

    def _slices(self, now: Predictions, rival: Predictions) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
        """Name of each slice with its drop in recall, the log evidence that there is one, and the recall before and after."""
        left = now.failed.copy()
        pairs = sorted(set(zip(now.tools[left].tolist(), now.domains[left].tolist(), strict=True)))
        by_pair = [(f"{tool} × {domain}", (now.tools == tool) & (now.domains == domain)) for tool, domain in pairs]
        by_tool = [(tool, now.tools == tool) for tool in sorted({tool for tool, _ in pairs})]
        for name, inside in (*by_pair, *by_tool, ("all others", np.ones_like(left))):
            mine = inside & left
            if mine.sum() < self.config.slice_failures:
                continue
            left &= ~mine
            after, before = now.where(mine), rival.where(mine)
            lost = (before.probability > 0.5).astype(np.float64) - (after.probability > 0.5)
            evidence = log_wealth(after.by_session(lost).tolist())
            yield name, (before.recall - after.recall, evidence, before.recall, after.recall)

    def _harmed(self, drop: float, evidence: float) -> bool:
        return drop > self.config.recall_margin and evidence >= -math.log(self.config.harm)

    def _judged_tools(self, predictions: Predictions, before: Collection[str]) -> tuple[str, ...]:
        judged = set(before)
        for tool, count in predictions.tool_counts.items():
            if count < self.config.tool_steps:
                continue
            auroc = predictions.of_tool(tool).auroc
            # One outcome only: nothing to rank, so nothing speaks against its rate.
            if math.isnan(auroc) or auroc >= self.config.tool_auroc:
                judged.add(tool)
            elif auroc < self.config.tool_auroc_lost:
                judged.discard(tool)
        return tuple(sorted(judged))


def spectral_norm(tensors: Mapping[str, Tensor], scale: float) -> float:
    """Largest singular value of any change scale * B @ A, by QR of the factors: 0.6 ms where the dense way takes 457."""
    largest = 0.0
    for block in range(BLOCKS):
        for target in LORA_TARGETS:
            a, b = (tensors[adapter_key(block, target, factor)].float() for factor in "AB")
            inner = torch.linalg.qr(b, mode="r").R @ torch.linalg.qr(a.T, mode="r").R.T
            largest = max(largest, scale * float(torch.linalg.matrix_norm(inner, ord=2)))
    return largest
