"""What the published version's errors on new sessions say: that a tool's rules have changed, or that an agent lies about it.

Both show as labels that the version did not expect. If the agents agree among themselves, the world has changed; if a few
disagree with the others, they are not believed. What is compared is the squared error of P(step fails) on steps before
they are learned; whether a step failed is the tool's own word, not a judge's. Steps that the version warned of and steps
that it called safe are followed apart: who calls failures successes is right about nearly all of the second.

- **A change** is an e-detector (Shin, Ramdas and Rinaldo 2022) on each tool and side: every agent's steps bet against "the
  error is at most what the version showed on held-out sessions, plus `change_margin`", with a wealth that begins again at 1
  whenever it falls below. The rules have changed when the wealths of all agents but the richest 40 % multiply to
  1 / `change_alarm`: so every agent that sees the change adds to the evidence, and fewer liars than that add nothing.
- **Distrust** is a bet (Waudby-Smith and Ramdas 2024) for each agent, tool and side against "its error is at most the median of the
  other agents' plus `agent_margin`". Who is doubted is so until all of that wealth is lost again. When those who are distrusted would be 40 %
  of a tool's agents or more, it is a dispute and nobody is left out: a minority can be outvoted, half of a fleet cannot.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

# Share of the wealth that a bet may lose: a liar, and a change, is betrayed by some of the steps only.
STAKE = 0.6
SMALLEST_ERROR = 0.02
Side = tuple[str, bool]
"""A tool, and whether the version warned of the step."""
LIARS = 0.4


@dataclass(frozen=True, slots=True)
class TrustConfig:
    """Margins are squared errors of a probability, so within 0..1."""

    quorum: int = 5
    change_margin: float = 0.1
    change_alarm: float = 1 / 500
    agent_margin: float = 0.1
    agent_alarm: float = 1 / 200
    window_steps: int = 16


@dataclass(frozen=True, slots=True)
class Surprise:
    """Squared error of the published version on one step, before it was learned."""

    tool: str
    warned: bool
    agent: str
    error: float

    @property
    def side(self) -> Side:
        return self.tool, self.warned


@dataclass(slots=True)
class _Side:
    usual: float | None = None
    recent: dict[str, deque[float]] = field(default_factory=dict)
    news: dict[str, float] = field(default_factory=dict)
    against: dict[str, float] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)


class Watch:
    """Follows all tools of one tenant. Not thread-safe."""

    def __init__(self, config: TrustConfig | None = None) -> None:
        self.config = config or TrustConfig()
        self._sides: dict[Side, _Side] = defaultdict(_Side)

    def published(self, usual: Mapping[Side, float]) -> None:
        """Mean squared error that a new published version shows on held-out steps, by tool and side.

        The lowest since the last change stays the reference: a version that has half learned a change must not hide it.
        """
        for side, error in usual.items():
            known = self._sides[side]
            error = max(error, SMALLEST_ERROR)
            known.usual = error if known.usual is None else min(known.usual, error)

    def observe(self, surprises: Iterable[Surprise]) -> frozenset[str]:
        """Take in new steps; returns the tools whose rules have changed."""
        others: dict[tuple[Side, str], float | None] = {}
        for surprise in surprises:
            known = self._sides[surprise.side]
            pair = surprise.side, surprise.agent
            if pair not in others:  # what the others said before this batch
                others[pair] = self._others(known, surprise.agent)
            expected = others[pair]
            if expected is not None:
                self._doubt(known, surprise, expected + self.config.agent_margin)
            if known.usual is not None:
                _bet(known.news, surprise, known.usual + self.config.change_margin)
            known.recent.setdefault(surprise.agent, deque(maxlen=self.config.window_steps)).append(surprise.error)
        changed = frozenset(side[0] for side in {side for side, _ in others} if self._changed(self._sides[side]))
        for tool in changed:
            # What was usual, and who disagreed, was about the old rules.
            for warned in (True, False):
                self._sides.pop((tool, warned), None)
        return changed

    @property
    def doubted(self) -> frozenset[tuple[str, str]]:
        """Agents and the tools of which their steps are not to be learned."""
        found: set[tuple[str, str]] = set()
        for (tool, _), known in self._sides.items():
            if len(known.doubted) < LIARS * len(known.recent):
                found.update((agent, tool) for agent in known.doubted)
        return frozenset(found)

    def _others(self, known: _Side, agent: str) -> float | None:
        means = [fmean(errors) for other, errors in known.recent.items() if other != agent]
        return median(means) if len(means) >= self.config.quorum - 1 else None

    def _doubt(self, known: _Side, surprise: Surprise, expected: float) -> None:
        # Above a ceiling, a long lie could never be lived down.
        wealth = _bet(known.against, surprise, expected, ceiling=10 / self.config.agent_alarm)
        if wealth >= 1 / self.config.agent_alarm:
            known.doubted.add(surprise.agent)
        elif wealth == 1:
            known.doubted.discard(surprise.agent)

    def _changed(self, known: _Side) -> bool:
        wealths = sorted(known.news.values())
        believed = wealths[: len(wealths) - int(LIARS * len(wealths))]
        return sum(math.log(wealth) for wealth in believed) >= -math.log(self.config.change_alarm)


def _bet(wealths: dict[str, float], surprise: Surprise, expected: float, ceiling: float = math.inf) -> float:
    """The agent's wealth after betting that the error is above what is expected."""
    factor = 1 + STAKE / expected * (surprise.error - expected)
    wealth = wealths[surprise.agent] = min(ceiling, max(1.0, wealths.get(surprise.agent, 1.0) * factor))
    return wealth
