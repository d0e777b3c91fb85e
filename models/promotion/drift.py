"""What the published version's errors on new sessions say: that a tool's rules have changed, or that an agent lies about it.

Both show as labels that the version did not expect. If the agents agree among themselves, the world has changed; if a few
disagree with the others, they are not believed. What counts is P(step fails) against what happened, on steps before
they are learned; whether a step failed is the tool's own word, not a judge's. Steps that the version warned of and steps
that it called safe are followed apart: what is usual differs between them.

- **A change** is an e-detector (Shin, Ramdas and Rinaldo 2022) on each tool and side: every agent's steps bet against "the
  error is at most what the version showed on held-out sessions, plus `change_margin`", with a wealth that begins again at 1
  whenever it falls below. The rules have changed when the wealths of all agents but the richest 40 % multiply to
  1 / `change_alarm`: so every agent that sees the change adds to the evidence, and fewer liars than that add nothing.
- **Distrust** is two bets (Waudby-Smith and Ramdas 2024) for each agent and tool: that it reports fewer, and more, failures than 60 % of the
  others do. What is compared is P(fails) minus the label, on each side with the others' means, give or take `agent_margin`. A squared error
  would say nothing while the version knows little: at P = 1/2 either label is as far away. Only where it is known what is usual: to a version
  that has hardly met a tool, honest agents of different habits look alike and are not. Who is doubted is so until all of that wealth is
  lost again. When those who are distrusted would be 40 % of a tool's agents or more, it is a dispute and nobody is left out: a minority can be
  outvoted, half of a fleet cannot.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

# Share of the wealth that a bet may lose: a change shows in some of the steps only.
STAKE = 0.6
OUTLIER_STAKE = 0.9
SMALLEST_ERROR = 0.02
Group = tuple[str, bool]
"""A tool, and whether the version warned of the step."""
OUTLIER_SHARE = 0.4
MINIMUM_STEPS = 4
"""Where few steps fail, most means of fewer steps are of none, and so is their median: who reports the usual would seem to report more."""


@dataclass(frozen=True, slots=True)
class DriftConfig:
    """`change_margin` is a squared error of a probability, `agent_margin` a share of steps; `agent_alarm` of each of an agent's two bets on a tool."""

    quorum: int = 5
    change_margin: float = 0.1
    change_alarm: float = 1 / 500
    agent_margin: float = 0.1
    agent_alarm: float = 1 / 400
    window_steps: int = 16


@dataclass(frozen=True, slots=True)
class Residual:
    """What the published version did not expect of one step, before it was learned: P(fails) minus whether it did."""

    tool: str
    warned: bool
    agent: str
    residual: float

    @property
    def error(self) -> float:
        """Squared."""
        return self.residual**2

    @property
    def group(self) -> Group:
        return self.tool, self.warned


@dataclass(slots=True)
class _GroupState:
    baseline_error: float | None = None
    recent: dict[str, deque[float]] = field(default_factory=dict)
    change_e_values: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class EValues:
    """Of one tool: wealth of the bets that an agent reports fewer (True) and more failures than the others, and who is doubted."""

    e_values: dict[bool, dict[str, float]] = field(default_factory=lambda: {True: {}, False: {}})
    outliers: set[str] = field(default_factory=set)


class ChangeDetector:
    """Follows all tools of one tenant. Not thread-safe."""

    def __init__(self, config: DriftConfig | None = None) -> None:
        self.config = config or DriftConfig()
        self._groups: dict[Group, _GroupState] = defaultdict(_GroupState)
        self._outlier_evidence: dict[str, EValues] = defaultdict(EValues)

    def set_baseline(self, baseline_error: Mapping[Group, float]) -> None:
        """Mean squared error that a new published version shows on held-out steps, by tool and side.

        The lowest since the last change stays the reference: a version that has half learned a change must not hide it.
        """
        for group, error in baseline_error.items():
            known = self._groups[group]
            error = max(error, SMALLEST_ERROR)
            known.baseline_error = error if known.baseline_error is None else min(known.baseline_error, error)

    def observe(self, residuals: Iterable[Residual]) -> frozenset[str]:
        """Take in new steps; returns the tools whose rules have changed."""
        others: dict[tuple[Group, str], dict[bool, float] | None] = {}
        for residual in residuals:
            known = self._groups[residual.group]
            pair = residual.group, residual.agent
            if pair not in others:  # what the others said before this batch
                others[pair] = self._expected_range(known, residual.agent)
            expected = others[pair]
            if expected is not None and known.baseline_error is not None:
                self._compare(residual, expected)
            if known.baseline_error is not None:
                expected_error = known.baseline_error + self.config.change_margin
                _bet(known.change_e_values, residual.agent, STAKE / expected_error * (residual.error - expected_error))
            recent = known.recent.setdefault(residual.agent, deque(maxlen=self.config.window_steps))
            recent.append(residual.residual)
        changed = frozenset(
            group[0] for group in {group for group, _ in others} if self._has_changed(self._groups[group])
        )
        for tool in changed:
            # What was usual, and who disagreed, was about the old rules.
            for warned in (True, False):
                self._groups.pop((tool, warned), None)
            self._outlier_evidence.pop(tool, None)
        return changed

    @property
    def outliers(self) -> frozenset[tuple[str, str]]:
        """Agents and the tools of which their steps are not to be learned."""
        found: set[tuple[str, str]] = set()
        for tool, doubts in self._outlier_evidence.items():
            heard = {agent for warned in (True, False) for agent in self._groups[tool, warned].recent}
            if len(doubts.outliers) < OUTLIER_SHARE * len(heard):
                found.update((agent, tool) for agent in doubts.outliers)
        return frozenset(found)

    def _expected_range(self, known: _GroupState, agent: str) -> dict[bool, float] | None:
        """What 60 % of the others keep to who report the most, and the fewest, failures: how few (True) and how many may be reported."""
        means = sorted(fmean(r) for other, r in known.recent.items() if other != agent and len(r) >= MINIMUM_STEPS)
        if len(means) < self.config.quorum - 1:
            return None
        # One of the others at least is no liar there, as whoever is weighed is one of the liars or none.
        kept = int((1 - OUTLIER_SHARE) * len(means))
        return {True: means[kept], False: means[-1 - kept]}

    def _compare(self, residual: Residual, expected: Mapping[bool, float]) -> None:
        known = self._outlier_evidence[residual.tool]
        for less, wealths in known.e_values.items():
            # A residual lies within P and P - 1, and P on one side of 1/2.
            reach = 0.5 if residual.warned == less else 1.0
            sign = 1 if less else -1
            most_lost = max(0.5, self.config.agent_margin + reach + sign * expected[less])
            gain = sign * (residual.residual - expected[less]) - self.config.agent_margin
            # Above a ceiling, a long lie could never be lived down.
            _bet(wealths, residual.agent, OUTLIER_STAKE * gain / most_lost, ceiling=2 / self.config.agent_alarm)
        wealth = max(wealths[residual.agent] for wealths in known.e_values.values())
        if wealth >= 1 / self.config.agent_alarm:
            known.outliers.add(residual.agent)
        elif wealth == 1:
            known.outliers.discard(residual.agent)

    def _has_changed(self, known: _GroupState) -> bool:
        wealths = sorted(known.change_e_values.values())
        believed = wealths[: len(wealths) - int(OUTLIER_SHARE * len(wealths))]
        return sum(math.log(wealth) for wealth in believed) >= -math.log(self.config.change_alarm)


def _bet(wealths: dict[str, float], agent: str, gain: float, ceiling: float = math.inf) -> None:
    """Multiply the agent's wealth by 1 + gain; below 1 it begins again at 1."""
    wealths[agent] = min(ceiling, max(1.0, wealths.get(agent, 1.0) * (1 + gain)))
