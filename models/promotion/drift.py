"""Detect drift in the running version's errors on new sessions: changed rules of a tool, and outlier agents.

Both show as labels that the version did not expect. If the agents agree, the world has changed; a few that disagree are
outliers. The input is P(step fails) against the outcome, before the steps are learned; the outcome is the tool's own
report. Steps that the version warned of and steps that it called safe form two groups, with baselines of their own.

- **A change** is an e-detector (Shin, Ramdas and Rinaldo 2022) on each tool and group. Every agent's steps bet against
  "the error is at most the version's error on held-out sessions, plus `CHANGE_MARGIN`", with an e-value that restarts
  at 1 when it falls below. The rules have changed when the e-values of all agents but the largest 40 % multiply to
  1 / `CHANGE_ALARM`: every agent that sees the change adds evidence, and fewer liars than 40 % add none.
- **An outlier** is found by two bets (Waudby-Smith and Ramdas 2024) on each agent and tool: that it reports fewer, and
  more, failures than 60 % of the others do. The bets compare residuals in each group with the others' means, give or
  take `AGENT_MARGIN`; a squared error would say nothing at P = 1/2. They need a baseline: before a version knows a
  tool, honest agents of different habits look different. An outlier stays one until it has lost all of that wealth. If
  the outliers would be 40 % of a tool's agents or more, it is a dispute and no agent is left out: a minority can be
  outvoted, half of a fleet cannot.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

# Share of the e-value that a bet may lose: a change shows in some of the steps only.
STAKE = 0.6
OUTLIER_STAKE = 0.9
SMALLEST_ERROR = 0.02
# A tool, and whether the version warned of the step.
Group = tuple[str, bool]
OUTLIER_SHARE = 0.4
# Fewest steps of an agent's mean: with fewer, most means are 0 and normal agents seem to report more.
MINIMUM_STEPS = 4
QUORUM = 5
CHANGE_MARGIN = 0.1  # squared error of a probability
CHANGE_ALARM = 1 / 500
AGENT_MARGIN = 0.1  # share of steps
AGENT_ALARM = 1 / 400  # error rate of each of an agent's two bets on a tool
WINDOW_STEPS = 16


@dataclass(frozen=True, slots=True)
class Residual:
    """What the running version did not expect of one step, before it was learned: P(fails) minus the outcome."""

    tool: str
    warned: bool
    agent: str
    residual: float

    @property
    def error(self) -> float:
        """Squared residual."""
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
    """For one tool: e-values that an agent reports fewer (True) and more failures than the others, and the outliers."""

    e_values: dict[bool, dict[str, float]] = field(default_factory=lambda: {True: {}, False: {}})
    outliers: set[str] = field(default_factory=set)


class ChangeDetector:
    """Follows all tools of one tenant. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[Group, _GroupState] = defaultdict(_GroupState)
        self._outlier_evidence: dict[str, EValues] = defaultdict(EValues)

    def set_baseline(self, baseline_error: Mapping[Group, float]) -> None:
        """Set the mean squared error of a new published version on held-out steps, by tool and group.

        The lowest since the last change stays the baseline: a version that has half learned a change must not hide it.
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
            if pair not in others:  # by the others' steps before this batch
                others[pair] = self._expected_range(known, residual.agent)
            expected = others[pair]
            if expected is not None and known.baseline_error is not None:
                self._compare(residual, expected)
            if known.baseline_error is not None:
                expected_error = known.baseline_error + CHANGE_MARGIN
                _bet(known.change_e_values, residual.agent, STAKE / expected_error * (residual.error - expected_error))
            recent = known.recent.setdefault(residual.agent, deque(maxlen=WINDOW_STEPS))
            recent.append(residual.residual)
        changed = frozenset(
            group[0] for group in {group for group, _ in others} if self._has_changed(self._groups[group])
        )
        for tool in changed:
            # Baselines and outliers were about the old rules.
            for warned in (True, False):
                self._groups.pop((tool, warned), None)
            self._outlier_evidence.pop(tool, None)
        return changed

    @property
    def outliers(self) -> frozenset[tuple[str, str]]:
        """Agents, and the tools whose steps they report must not be learned."""
        found: set[tuple[str, str]] = set()
        for tool, evidence in self._outlier_evidence.items():
            agents = {agent for warned in (True, False) for agent in self._groups[tool, warned].recent}
            if len(evidence.outliers) < OUTLIER_SHARE * len(agents):
                found.update((agent, tool) for agent in evidence.outliers)
        return frozenset(found)

    def _expected_range(self, known: _GroupState, agent: str) -> dict[bool, float] | None:
        """The residuals that 60 % of the others reach: a bound on reporting fewer (True) and more failures."""
        means = sorted(fmean(r) for other, r in known.recent.items() if other != agent and len(r) >= MINIMUM_STEPS)
        if len(means) < QUORUM - 1:
            return None
        # At least one of the others beyond the bound is honest.
        kept = int((1 - OUTLIER_SHARE) * len(means))
        return {True: means[kept], False: means[-1 - kept]}

    def _compare(self, residual: Residual, expected: Mapping[bool, float]) -> None:
        known = self._outlier_evidence[residual.tool]
        for fewer, e_values in known.e_values.items():
            # A residual lies within P and P - 1, and P on one side of 1/2.
            reach = 0.5 if residual.warned == fewer else 1.0
            sign = 1 if fewer else -1
            most_lost = max(0.5, AGENT_MARGIN + reach + sign * expected[fewer])
            gain = sign * (residual.residual - expected[fewer]) - AGENT_MARGIN
            # Without a ceiling, an agent that lied for long could never be trusted again.
            _bet(e_values, residual.agent, OUTLIER_STAKE * gain / most_lost, ceiling=2 / AGENT_ALARM)
        e_value = max(e_values[residual.agent] for e_values in known.e_values.values())
        if e_value >= 1 / AGENT_ALARM:
            known.outliers.add(residual.agent)
        elif e_value == 1:
            known.outliers.discard(residual.agent)

    def _has_changed(self, known: _GroupState) -> bool:
        e_values = sorted(known.change_e_values.values())
        trusted = e_values[: len(e_values) - int(OUTLIER_SHARE * len(e_values))]
        return sum(math.log(e_value) for e_value in trusted) >= -math.log(CHANGE_ALARM)


def _bet(e_values: dict[str, float], agent: str, gain: float, ceiling: float = math.inf) -> None:
    """Multiply the agent's e-value by 1 + gain; below 1 it restarts at 1."""
    e_values[agent] = min(ceiling, max(1.0, e_values.get(agent, 1.0) * (1 + gain)))
