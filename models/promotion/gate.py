"""Decide whether a candidate adapter is promoted, by what it shows on held-out sessions.

The gate fails closed: a candidate that cannot be measured is not promoted. Checks run from cheap to dear: structure,
size of the change, probe, then held-out sessions against the running version, where no slice may lose failures that the
running version warned of. Last, there must be evidence of a gain, from all new sessions before they were learned
(`models.promotion.prequential`). So a course of learning that is never better than the running version replaces it with
a probability of at most `false_promotions`, however many candidates it sends and however often the gate looks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
from fleetlore.wire.adapter_manifest import State
from models.data.dataset import Example
from models.promotion.e_process import log_wealth
from models.promotion.metrics import Foresight, Predictions
from models.promotion.prequential import Prequential

# Tool, and state of the session before the call.
Where = tuple[str, State]


@dataclass(frozen=True, slots=True)
class GateConfig:
    """The thresholds. The candidate's figures are compared with the running version's on the same sessions.

    Attributes:
        false_promotions: error budget of a course of learning: of all candidates between two fresh starts together.
        session_gain: as in `models.promotion.prequential`.
        recall_margin: share of the failures that the running version warns of which may be lost, in any slice.
        harm: significance level of a lost recall; an error here only refuses a good candidate.
        slice_failures: failures that make a slice (tool and domain) of its own; smaller ones are pooled by tool, then
            all.
        auroc_margin: for a first version, which is measured against the bare base.
        smallest_spectral_bound: a change of a weight matrix up to this largest singular value always passes (healthy
            adapters stay under 6); above it, `spectral_factor` times the running version's is the bound.
        tool_steps, tool_auroc: what a tool must show so that the version may judge it.
        tool_auroc_lost: below this AUROC, on as many steps, the version may no longer judge the tool. It is lower than
            `tool_auroc` because the AUROC of a few steps wanders by .1 and more.
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
    """The decision.

    Attributes:
        reason: `passed`, or one of a bounded set of words. `too_few` and `no_gain` mean: ask again with more sessions;
            the others mean that the candidate would do harm.
        tools: tools that the candidate may judge, by its held-out steps.
        slices: recall of each slice before and after, where the gate looked at it.
        ineffective_tools: tools for which it may say whether a call is ineffective, by the same thresholds.
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
        """Whether it reached the held-out sessions; if not, it is unsound and more learning will not mend it."""
        return "cross_entropy" in self.figures


class _Slice(NamedTuple):
    """Recall of failures before and after, and the log evidence that some was lost."""

    name: str
    before: float
    after: float
    log_evidence: float


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
        *,
        speaks: Collection[Where] = (),
        spoke: Collection[Where] = (),
    ) -> GateReport:
        """Measure `candidate` against `running` (None: the bare base) on sessions that neither has learned.

        Args:
            evidence: of the candidate's course of learning; without it there is no evidence of a gain.
            judged: tools that the running version may judge and whose rules are unchanged: the candidate may too,
                unless its steps show otherwise.
            judged_ineffective: the same for ineffective calls.
            speaks, spoke: calls at which it adds to the call model, and at which the running version says so. Where
                these differ it need not be better than that one, only harmless.
        """
        try:
            tensors = read_adapter(candidate, self._rank)
        except AdapterRefused as refusal:
            return GateReport(refusal.reason)
        figures = {"spectral_norm": spectral_norm(tensors, self._scale)}
        if figures["spectral_norm"] > self._spectral_bound(running):
            return GateReport("spectral_norm", figures)
        network = merge_lora(self._base, tensors, self._scale)
        if probe_answers(network, probe_seed) == probe_answers(self._base, probe_seed):
            return GateReport("no_effect", figures)

        mine, known = self._foreseen.get(candidate) or Foresight(network), self.foresight(running)
        self._foreseen = {candidate: mine, running: known}
        now = mine.predict(held_out)
        failures = int(now.failed.sum())
        figures |= {"held_out_steps": float(len(now.failed)), "held_out_failures": float(failures)}
        enough = min(failures, len(now.failed) - failures) >= self.config.minimum_failures
        if len(now.failed) < self.config.minimum_steps or not enough:
            return GateReport("too_few", figures)

        rival = known.predict(held_out)
        slices = list(self._slices(now, rival))
        figures |= _quality(now) | _quality(rival, "running_") | self._gain(evidence)
        figures |= {"slices": float(len(slices)), "slices_harmed": float(sum(map(self._is_harmed, slices)))}
        figures = {name: round(value, 6) for name, value in figures.items()}
        tools = self._judged_tools(now, judged)
        return GateReport(
            self._verdict(figures, running is not None, {each for each in speaks if each[0] in tools} != set(spoke)),
            figures,
            tools,
            {each.name: (round(each.before, 4), round(each.after, 4)) for each in slices},
            self._judged_tools(mine.predict_ineffective(held_out), judged_ineffective),
        )

    def foresight(self, version: bytes | None) -> Foresight:
        """Predictions of a version by its weights (None: the bare base), cached for what was measured last.

        The running version is measured against many candidates, and a promoted candidate runs next: neither reads the
        same sessions again.
        """
        known = self._foreseen.get(version)
        if known is not None:
            return known
        tensors = read_adapter(version, self._rank) if version is not None else None
        return Foresight(merge_lora(self._base, tensors, self._scale) if tensors is not None else self._base)

    def _spectral_bound(self, running: bytes | None) -> float:
        norm = spectral_norm(read_adapter(running, self._rank), self._scale) if running is not None else 0.0
        return max(self.config.smallest_spectral_bound, self.config.spectral_factor * norm)

    def _gain(self, evidence: Prequential | None) -> dict[str, float]:
        return {
            "gain": evidence.gain if evidence else 0.0,
            "evidence_sessions": float(evidence.sessions) if evidence else 0.0,
            "log_evidence": evidence.log_evidence if evidence else 0.0,
            "log_evidence_needed": self.needed,
        }

    @property
    def needed(self) -> float:
        """Log evidence of a gain that suffices."""
        return -math.log(self.config.false_promotions)

    def evident(self, evidence: Prequential) -> bool:
        """Whether the evidence of a gain suffices; harm is the only question left."""
        return evidence.sessions > 0 and evidence.log_evidence >= self.needed

    def _verdict(self, figures: Mapping[str, float], in_service: bool, speaks_elsewhere: bool) -> str:
        # `not (a >= b)` instead of `a < b`: a NaN must fail.
        config = self.config
        if not in_service:
            # The bare base warns of everything it has not seen and no agent runs it: its ranking counts, its warnings
            # do not. Nothing can get worse: without a version, agents abstain.
            if not figures["auroc"] >= figures["running_auroc"] - config.auroc_margin:
                return "auroc"
            return "passed"
        if not figures["balanced_accuracy"] >= figures["running_balanced_accuracy"] - config.balanced_accuracy_margin:
            return "balanced_accuracy"
        # Overall figures can rise while failures are called safe, as with poisoned labels.
        if not figures["recall"] >= figures["running_recall"] - config.recall_margin:
            return "recall"
        if figures["slices_harmed"] > 0:
            return "slice_recall"
        evident = figures["log_evidence"] >= figures["log_evidence_needed"]
        return "passed" if evident or speaks_elsewhere else "no_gain"

    def _slices(self, now: Predictions, rival: Predictions) -> Iterator[_Slice]:
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
            yield _Slice(name, before.recall, after.recall, log_wealth(after.by_session(lost).tolist()))

    def _is_harmed(self, part: _Slice) -> bool:
        return part.before - part.after > self.config.recall_margin and part.log_evidence >= -math.log(self.config.harm)

    def _judged_tools(self, predictions: Predictions, before: Collection[str]) -> tuple[str, ...]:
        judged = set(before)
        for tool, count in predictions.tool_counts.items():
            if count < self.config.tool_steps:
                continue
            auroc = predictions.of_tool(tool).auroc
            # One outcome only: there is nothing to rank, so nothing contradicts its rate.
            if math.isnan(auroc) or auroc >= self.config.tool_auroc:
                judged.add(tool)
            elif auroc < self.config.tool_auroc_lost:
                judged.discard(tool)
        return tuple(sorted(judged))


def _quality(predictions: Predictions, prefix: str = "") -> dict[str, float]:
    names = ("auroc", "balanced_accuracy", "cross_entropy", "recall", "calibration_error")
    return {f"{prefix}{name}": getattr(predictions, name) for name in names}


def spectral_norm(tensors: Mapping[str, Tensor], scale: float) -> float:
    """Largest singular value of any change scale * B @ A, by QR of the factors: hundreds of times faster than dense."""
    largest = 0.0
    for block in range(BLOCKS):
        for target in LORA_TARGETS:
            a, b = (tensors[adapter_key(block, target, factor)].float() for factor in "AB")
            inner = torch.linalg.qr(b, mode="r").R @ torch.linalg.qr(a.T, mode="r").R.T
            largest = max(largest, scale * float(torch.linalg.matrix_norm(inner, ord=2)))
    return largest
