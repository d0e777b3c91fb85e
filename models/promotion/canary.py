"""A new version tried on a share of the agents: do their sessions end as well as those of the others?

Sessions are paired as they end, one under each version, and what differs is bet on, so that the trial may be looked at after
every pair (`models.promotion.e_process`). It is promoted on evidence that it costs less than `margin` of success, aborted on evidence that it
costs any; without enough sessions, nothing is decided until the time is up, and then it is aborted: missing data is no success.
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
    """alpha: chance to promote what costs `margin` of success, and to abort what costs nothing."""

    margin: float = 0.1
    alpha: float = 0.05
    patience_seconds: float = 3600.0


class CanaryTrial:
    """One version against the one that runs; sessions of other versions say nothing."""

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
        """Take in a session by the version that its agent ran last; a repeated one changes nothing."""
        trajectory = judgment.trajectory
        version = next((step.adapter for step in reversed(trajectory.steps) if step.adapter is not None), None)
        if version not in self._ended or judgment.verdict.label == "abstained" or trajectory.id in self._seen:
            return
        self._seen.add(trajectory.id)
        self._ended[version].append(judgment.verdict.label == "success")

    def decide(self, now: float) -> Decision:
        """What the sessions so far say; `now` on the clock of `began`."""
        lost = [int(b) - int(a) for a, b in zip(self._ended[self.canary], self._ended[self.stable], strict=False)]
        needed = -math.log(self.config.alpha)
        if log_wealth(lost) >= needed:
            return "abort"
        margin = self.config.margin
        if log_wealth([(margin - each) / (1 + margin) for each in lost]) >= needed:
            return "promote"
        return "abort" if now - self._began >= self.config.patience_seconds else "waiting"
