"""Weigh sessions in an update: both outcomes alike, and no agent more than its share, however much it sends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from models.data.dataset import UNLABELLED, Example

AGENT_SHARE = 0.05
MOST_BALANCING = 3.0


def sample_weights(examples: Sequence[Example]) -> list[float]:
    """Weight of a step of each example; the mean over all labelled steps is 1.

    Failed and successful sessions weigh the same (a rare outcome at most `MOST_BALANCING` times its number). Then no
    agent has more than `AGENT_SHARE` of the whole, or its equal part where fewer agents make that impossible; the rest
    goes to the others in proportion (water-filling).
    """
    steps = [int((example.failed != UNLABELLED).sum()) for example in examples]
    by_outcome = {
        failed: sum(n for e, n in zip(examples, steps, strict=True) if e.session_failed == failed)
        for failed in (True, False)
    }
    total = sum(steps)
    if total == 0:
        return [1.0] * len(examples)
    balance = {
        failed: min(MOST_BALANCING, total / (2 * mass)) if mass and mass < total else 1.0
        for failed, mass in by_outcome.items()
    }
    masses: dict[str, float] = defaultdict(float)
    for example, n in zip(examples, steps, strict=True):
        masses[example.agent] += n * balance[example.session_failed]
    masses = {agent: mass for agent, mass in masses.items() if mass}
    factors = _capped(masses, max(AGENT_SHARE, 1 / len(masses)))
    raw = [balance[example.session_failed] * factors.get(example.agent, 1.0) for example in examples]
    mean = sum(weight * n for weight, n in zip(raw, steps, strict=True)) / total
    return [weight / mean for weight in raw]


def shares(agents: Sequence[str]) -> list[float]:
    """Weight of each session by its agent, the largest 1: no agent exceeds `AGENT_SHARE`, or twice its equal part."""
    counts = dict(Counter(agents))
    factors = _capped(counts, max(AGENT_SHARE, 2 / len(counts))) if counts else {}
    most = max(factors.values(), default=1.0)
    return [factors[agent] / most for agent in agents]


def _capped(masses: Mapping[str, float], bound: float) -> dict[str, float]:
    """Factor of each agent after which none exceeds the bound of the sum; the bound is at least an equal part."""
    order = sorted(masses, key=lambda agent: (-masses[agent], agent))
    left = sum(masses.values())
    # From the largest: each above the bound gets exactly the bound, and the rest share what remains.
    for capped, agent in enumerate(order):
        remaining = 1 - bound * capped
        if remaining <= 0 or masses[agent] / left * remaining <= bound * (1 + 1e-12):
            scale = max(remaining, 0.0) / left
            return {a: bound / masses[a] if place < capped else scale for place, a in enumerate(order)}
        left -= masses[agent]
    return {agent: bound / masses[agent] for agent in order}
