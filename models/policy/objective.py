"""Measure by how much a batch of pairs is not yet told apart: the contrastive objective.

`python -m benchmarks.policy` compares it with others on the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor
from torch.nn import functional

__all__ = ["Likelihoods", "Objective", "margin"]

# Nats by which a token of the call that worked should be likelier than one of the call that failed.
_TARGET = 0.5
_SHARPNESS = 4.0
# Weight of the imitation of the call that worked. Without it both calls become less likely, and a third one is made.
_IMITATION = 0.5


class Likelihoods(NamedTuple):
    """Log-probabilities of the two calls of a pair after their prompt: scalars.

    Attributes:
        worked, failed: by the model with its adapter.
        worked_tokens, failed_tokens: lengths of the calls.
        base: asks the model without its adapter, which costs two passes more.
    """

    worked: Tensor
    failed: Tensor
    worked_tokens: int
    failed_tokens: int
    base: Callable[[], tuple[Tensor, Tensor]]


Objective: TypeAlias = Callable[[Likelihoods], Tensor]


def margin(pair: Likelihoods) -> Tensor:
    """A margin normalised by length, as in SimPO (Meng et al. 2024), and imitation, as in ORPO (Hong et al. 2024)."""
    worked, failed = pair.worked / pair.worked_tokens, pair.failed / pair.failed_tokens
    contrast: Tensor = -functional.logsigmoid(_SHARPNESS * (worked - failed - _TARGET))
    return contrast - _IMITATION * worked
