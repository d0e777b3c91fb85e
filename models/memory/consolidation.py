"""How contributions that repeat, contradict or outlive each other become one item.

near-duplicates   meet in one id, because the id is made of what was learned and not of how it was worded (`models.distil.distiller`)
contradictions    are counted on the item itself, by the sessions that contradict it; the newer and better backed side wins
age               halves what a session weighs every half-life of event time, so that what no longer holds is outweighed

All are functions of the set of contributions: no order of arrival, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple

from models.memory.candidate import Side

# What a session counts for the way it ended, whatever its verdict.
AGREEMENT = 0.5
# Of a half-life: what is younger than one of them is as good as new.
AGE_STEPS = 32
# Of the hash of a way; the bits above them are of the tool of its last call.
ENDING_BITS = 32


class Contributor(NamedTuple):
    """What the newest verdict on one session says; the greater one of two counts.

    Attributes:
        way: hash of how the session ended; 0 where that says nothing.
    """

    revision: tuple[int, float]
    side: Side
    agent: int
    seen: float
    way: int = 0


def weight(seen: float, newest: float, half_life_seconds: float) -> float:
    """What a session counts for beside the newest one, 0..1: half for each half-life that it is older.

    Age counts in whole steps: who came some hours before the other decides nothing between sessions that weigh the same, or else
    the same sessions in another order would teach another thing.
    """
    steps = int((newest - seen) * AGE_STEPS / half_life_seconds)
    return float(2.0 ** (-steps / AGE_STEPS))


def weigh(contributors: Iterable[Contributor], half_life_seconds: float) -> dict[Side, float]:
    """What each side weighs together."""
    contributors = list(contributors)
    newest = max((each.seen for each in contributors), default=0.0)
    weights: dict[Side, list[float]] = {"success": [], "failure": []}
    for each in contributors:
        weights[each.side].append(weight(each.seen, newest, half_life_seconds))
    # Not by `+=`: what a sum of fractions comes to would depend on their order.
    return {side: fsum(some) for side, some in weights.items()}


def votes(contributors: Iterable[Contributor], half_life_seconds: float) -> dict[int, float]:
    """By way: how much speaks for it.

    That is what the sessions weigh that ended so and succeeded, less those that ended so and failed: of sessions that ended
    alike all succeeded or none did, as far as the environment is just, so where a verdict is wrong the others outvote it. That
    many ended alike speaks for the way too, whatever the verdicts say (self-consistency, Wang et al. 2022, over the fleet's own
    runs). Where a way is new, how sessions fared that ended with the same tool has to do.
    """
    contributors = list(contributors)
    newest = max((each.seen for each in contributors), default=0.0)
    found: dict[int, list[float]] = {}
    by_tool: dict[int, list[float]] = {}
    for each in contributors:
        counts = weight(each.seen, newest, half_life_seconds)
        vote = counts if each.side == "success" else -counts
        found.setdefault(each.way, []).append(vote + AGREEMENT * counts)
        by_tool.setdefault(each.way >> ENDING_BITS, []).append(vote)
    return {way: fsum(own) + fsum(tool := by_tool[way >> ENDING_BITS]) / len(tool) for way, own in found.items()}
