"""Try a new version on a share of the agents, and decide whether their sessions end as well as the others'.

Sessions are paired as they end, one under each version, and each difference is a bet, so the trial may be read after
every pair (`models.promotion.e_process`). The version is promoted on evidence that it costs less than `margin` of
success, and aborted on evidence that it costs any. Without enough sessions it is aborted when the time is up: missing
data is no success.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fleetlore.wire.trajectory import Judgment
from models.promotion.e_process import log_wealth

Decision = Literal["promote", "abort", "waiting"]


@dataclass(frozen=True, slots=True)
class TrialConfig:
    """How long to try, and how sure to be.

    Attributes:
        alpha: probability of promoting a version that costs `margin` of success, or of aborting a harmless one.
    """

    margin: float = 0.1
    alpha: float = 0.05
    patience_seconds: float = 3600.0


class CanaryTrial:
    """One version against the running one; sessions of other versions are ignored."""

    def __init__(self, canary: str, stable: str, began: float, config: TrialConfig | None = None) -> None:
        self.canary = canary
        self.stable = stable
        self.config = config or TrialConfig()
        self._began = began
        self._ended: dict[str, list[bool]] = {canary: [], stable: []}
        self._seen: set[str] = set()

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Sessions and successes under each of the two versions."""
        return {version: (len(ended), sum(ended)) for version, ended in self._ended.items()}

    def add(self, judgment: Judgment) -> None:
        """Count a session under the version that its agent ran last; a repeated one changes nothing."""
        trajectory = judgment.trajectory
        version = next((step.adapter for step in reversed(trajectory.steps) if step.adapter is not None), None)
        if version not in self._ended or judgment.verdict.label == "abstained" or trajectory.id in self._seen:
            return
        self._seen.add(trajectory.id)
        self._ended[version].append(judgment.verdict.label == "success")

    def decide(self, now: float) -> Decision:
        """Decide by the sessions so far; `now` is on the clock of `began`."""
        lost = [int(b) - int(a) for a, b in zip(self._ended[self.canary], self._ended[self.stable], strict=False)]
        needed = -math.log(self.config.alpha)
        if log_wealth(lost) >= needed:
            return "abort"
        margin = self.config.margin
        if log_wealth([(margin - each) / (1 + margin) for each in lost]) >= needed:
            return "promote"
        return "abort" if now - self._began >= self.config.patience_seconds else "waiting"
