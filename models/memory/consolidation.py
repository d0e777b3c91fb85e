"""Weigh contributions that repeat, contradict or outlive each other.

near-duplicates   meet in one id, made of what was learned and not of its wording
contradictions    count on the item itself; the newer and better backed side wins
age               halves a session's weight every half-life of event time
harm              what could do some waits until several agents have done that very thing

All are functions of the set of contributions: no order of arrival, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple

from fleetlore.wire.lore import MemoryItem
from models.memory.candidate import Side

__all__ = ["is_unconfirmed"]

QUORUM_AGENTS = 3

# Steps of a half-life; a session younger than one step counts as new.
_AGE_STEPS = 32


class Contributor(NamedTuple):
    """The newest verdict on one session; the greater of two counts.

    Attributes:
        way, form: hashes of all that its contribution says, and of a way of a task with its literals masked.
        goal: hash of its goal.
        delayed: as in `models.memory.candidate.Candidate`.
        danger: whether a call of it could do harm.
    """

    revision: tuple[int, float]
    side: Side
    agent: int
    seen: float
    way: int = 0
    form: int = 0
    goal: int = 0
    delayed: bool = False
    danger: bool = False


def weight(seen: float, newest: float, half_life_seconds: float) -> float:
    """Weight of a session beside the newest one, 0..1: half for each half-life that it is older.

    Age counts in whole steps: hours must not decide between sessions of the same weight, or their order would.
    """
    steps = int((newest - seen) * _AGE_STEPS / half_life_seconds)
    return float(2.0 ** (-steps / _AGE_STEPS))


def weigh(contributors: Iterable[Contributor], half_life_seconds: float) -> dict[Side, float]:
    """Weight of each side, of the agents and not of their sessions (`_by_agents`)."""
    weights: dict[Side, list[float]] = {"success": [], "failure": []}
    for each, counts in _by_agents(contributors, half_life_seconds):
        weights[each.side].append(counts)
    # fsum: the result must not depend on the order.
    return {side: fsum(some) for side, some in weights.items()}


def _by_agents(contributors: Iterable[Contributor], half_life_seconds: float) -> list[tuple[Contributor, float]]:
    """Each with its weight: all sessions of an agent together weigh as much as its newest one.

    What many sessions of one agent say may be that agent's own, or a lie: it outweighs no second agent.
    """
    contributors = list(contributors)
    newest = max((each.seen for each in contributors), default=0.0)
    weights = [weight(each.seen, newest, half_life_seconds) for each in contributors]
    of_agent: dict[int, list[float]] = {}
    for each, counts in zip(contributors, weights, strict=True):
        of_agent.setdefault(each.agent, []).append(counts)
    share = {agent: max(some) / fsum(some) for agent, some in of_agent.items()}
    return [(each, counts * share[each.agent]) for each, counts in zip(contributors, weights, strict=True)]


def votes(contributors: Iterable[tuple[int, Contributor]], half_life_seconds: float) -> dict[int, tuple[int, float]]:
    """Of each way: the agents that succeeded by it, and its weight.

    A consistent environment lets all sessions of one way succeed or fail, so a way weighs its successes less its
    failures, and a wrong verdict is outvoted.

    Args:
        contributors: each with its way.
    """
    ways, sessions = zip(*contributors, strict=True) if (contributors := list(contributors)) else ((), ())
    weights: dict[int, list[float]] = {}
    agents: dict[int, set[int]] = {}
    for way, (each, counts) in zip(ways, _by_agents(sessions, half_life_seconds), strict=True):
        weights.setdefault(way, []).append(counts if each.side == "success" else -counts)
        agents.setdefault(way, set()).update([each.agent] if each.side == "success" else [])
    return {way: (len(agents[way]), fsum(some)) for way, some in weights.items()}


def is_unconfirmed(item: MemoryItem) -> bool:
    """Whether fewer agents than a quorum back what could do harm."""
    return item.danger and item.agents < QUORUM_AGENTS
