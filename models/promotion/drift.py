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
DOUBT_STAKE = 0.9
SMALLEST_ERROR = 0.02
Side = tuple[str, bool]
"""A tool, and whether the version warned of the step."""
LIARS = 0.4
HEARD_STEPS = 4
"""Where few steps fail, most means of fewer steps are of none, and so is their median: who reports the usual would seem to report more."""


@dataclass(frozen=True, slots=True)
class TrustConfig:
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
    def side(self) -> Side:
        return self.tool, self.warned


@dataclass(slots=True)
class _Side:
    usual: float | None = None
    recent: dict[str, deque[float]] = field(default_factory=dict)
    news: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Doubts:
    """Of one tool: wealth of the bets that an agent reports fewer (True) and more failures than the others, and who is doubted."""

    against: dict[bool, dict[str, float]] = field(default_factory=lambda: {True: {}, False: {}})
    doubted: set[str] = field(default_factory=set)


class ChangeDetector:
    """Follows all tools of one tenant. Not thread-safe."""

    def __init__(self, config: TrustConfig | None = None) -> None:
        self.config = config or TrustConfig()
        self._sides: dict[Side, _Side] = defaultdict(_Side)
        self._doubts: dict[str, _Doubts] = defaultdict(_Doubts)

    def published(self, usual: Mapping[Side, float]) -> None:
        """Mean squared error that a new published version shows on held-out steps, by tool and side.

        The lowest since the last change stays the reference: a version that has half learned a change must not hide it.
        """
        for side, error in usual.items():
            known = self._sides[side]
            error = max(error, SMALLEST_ERROR)
            known.usual = error if known.usual is None else min(known.usual, error)

    def observe(self, surprises: Iterable[Residual]) -> frozenset[str]:
        """Take in new steps; returns the tools whose rules have changed."""
        others: dict[tuple[Side, str], dict[bool, float] | None] = {}
        for surprise in surprises:
            known = self._sides[surprise.side]
            pair = surprise.side, surprise.agent
            if pair not in others:  # what the others said before this batch
                others[pair] = self._others(known, surprise.agent)
            expected = others[pair]
            if expected is not None and known.usual is not None:
                self._doubt(surprise, expected)
            if known.usual is not None:
                expected_error = known.usual + self.config.change_margin
                _bet(known.news, surprise.agent, STAKE / expected_error * (surprise.error - expected_error))
            recent = known.recent.setdefault(surprise.agent, deque(maxlen=self.config.window_steps))
            recent.append(surprise.residual)
        changed = frozenset(side[0] for side in {side for side, _ in others} if self._changed(self._sides[side]))
        for tool in changed:
            # What was usual, and who disagreed, was about the old rules.
            for warned in (True, False):
                self._sides.pop((tool, warned), None)
            self._doubts.pop(tool, None)
        return changed

    @property
    def doubted(self) -> frozenset[tuple[str, str]]:
        """Agents and the tools of which their steps are not to be learned."""
        found: set[tuple[str, str]] = set()
        for tool, doubts in self._doubts.items():
            heard = {agent for warned in (True, False) for agent in self._sides[tool, warned].recent}
            if len(doubts.doubted) < LIARS * len(heard):
                found.update((agent, tool) for agent in doubts.doubted)
        return frozenset(found)

    def _others(self, known: _Side, agent: str) -> dict[bool, float] | None:
        """What 60 % of the others keep to who report the most, and the fewest, failures: how few (True) and how many may be reported."""
        means = sorted(fmean(r) for other, r in known.recent.items() if other != agent and len(r) >= HEARD_STEPS)
        if len(means) < self.config.quorum - 1:
            return None
        # One of the others at least is no liar there, as whoever is weighed is one of the liars or none.
        kept = int((1 - LIARS) * len(means))
        return {True: means[kept], False: means[-1 - kept]}

    def _doubt(self, surprise: Residual, expected: Mapping[bool, float]) -> None:
        known = self._doubts[surprise.tool]
        for less, wealths in known.against.items():
            # A residual lies within P and P - 1, and P on one side of 1/2.
            reach = 0.5 if surprise.warned == less else 1.0
            sign = 1 if less else -1
            most_lost = max(0.5, self.config.agent_margin + reach + sign * expected[less])
            gain = sign * (surprise.residual - expected[less]) - self.config.agent_margin
            # Above a ceiling, a long lie could never be lived down.
            _bet(wealths, surprise.agent, DOUBT_STAKE * gain / most_lost, ceiling=2 / self.config.agent_alarm)
        wealth = max(wealths[surprise.agent] for wealths in known.against.values())
        if wealth >= 1 / self.config.agent_alarm:
            known.doubted.add(surprise.agent)
        elif wealth == 1:
            known.doubted.discard(surprise.agent)

    def _changed(self, known: _Side) -> bool:
        wealths = sorted(known.news.values())
        believed = wealths[: len(wealths) - int(LIARS * len(wealths))]
        return sum(math.log(wealth) for wealth in believed) >= -math.log(self.config.change_alarm)


def _bet(wealths: dict[str, float], agent: str, gain: float, ceiling: float = math.inf) -> None:
    """Multiply the agent's wealth by 1 + gain; below 1 it begins again at 1."""
    wealths[agent] = min(ceiling, max(1.0, wealths.get(agent, 1.0) * (1 + gain)))
