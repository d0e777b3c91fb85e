"""Combine what the call model and the network predict of a call. Needs no torch."""

from __future__ import annotations

from math import log
from typing import NamedTuple

from fleetlore.calls.model import sigmoid
from fleetlore.wire.adapter_manifest import Blend

# No chance counts as surer than this: one wrong certainty must not outweigh all else.
SUREST = 1e-6


class Outlook(NamedTuple):
    """What is foreseen of a call.

    Attributes:
        fails: P(the call fails).
        ineffective: P(the call fails, or works and does not help past the error that blocks the session); None where
            the version has not shown that it can tell this of that tool.
    """

    fails: float
    ineffective: float | None = None


def odds(chance: float) -> float:
    """Log odds of a chance."""
    chance = min(max(chance, SUREST), 1.0 - SUREST)
    return log(chance / (1.0 - chance))


def blended(blend: Blend, line: float, network: float) -> float:
    """P(the call fails) of what the call model and the network say."""
    return sigmoid(blend.line * odds(line) + blend.network * odds(network) + blend.bias)
