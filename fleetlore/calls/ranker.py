"""Rank what got others past failures of a tool of which too few are known to learn from (`fleetlore.calls.lacked`).

A logistic model over a few figures of likeness and evidence tells how likely each brings all that the session lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log, log1p
from typing import NamedTuple

import numpy as np

from fleetlore.calls.failed_call import FailedCall, FailureWords, read_parts, words
from fleetlore.calls.nearest import Near

# Of the agents that got past a failure the same way, so many count as its voters.
_VOTERS = 5
_ALL = ""


class Figures(NamedTuple):
    """By what a way out is ranked.

    Attributes:
        goal, call, error: cosines of the words of both failures.
        same_kind: both errors are the same without their names.
        same_names: share of the names that the error is about that the other error was about too.
        brings_names: all these names came with the change.
        vote: share of the candidates (by agents) that bring the most common word that this one brings.
        least_vote: the same of the rarest word.
        new, nothing_new: logarithm of the number of words that the session has not seen; there are none.
        known: share of the words of the change that the goal, the call or the error hold.
        agents: logarithm of how many agents got past it so.
        alike: logarithm of how many candidates bring the same words.
    """

    goal: float
    call: float
    error: float
    same_kind: float
    same_names: float
    brings_names: float
    vote: float
    least_vote: float
    new: float
    nothing_new: float
    known: float
    agents: float
    alike: float


# Means over three splits of logs of Python agents; and the chance from which something is said.
_BIAS = -5.36
_WEIGHTS = Figures(
    goal=0.95,
    call=0.42,
    error=1.49,
    same_kind=0.34,
    same_names=0.83,
    brings_names=2.44,
    vote=1.04,
    least_vote=-2.8,
    new=0.1,
    nothing_new=-1.25,
    known=2.37,
    agents=0.49,
    alike=0.43,
)
LEAST = 0.3


def figures(near: Near, asked: FailureWords, failed: FailedCall) -> list[Figures]:
    """Figures of each candidate for a failure."""
    votes: Counter[str] = Counter()
    for example in near.examples:
        voters = min(max(1, example.item.agents), _VOTERS)
        votes[_ALL] += voters
        for word in example.added:
            votes[word] += voters
    alike = Counter(example.added for example in near.examples)
    names = frozenset(asked.names)
    parts = read_parts(failed.goal, failed.text, failed.error)
    texts = frozenset(word for part in parts for word in words(part))
    goal, call, error = near.goal.tolist(), near.call.tolist(), near.error.tolist()
    found = []
    for place, example in enumerate(near.examples):
        added = example.added
        new = added.difference(texts, failed.seen)
        of_new = [votes[word] / votes[_ALL] for word in new] or [0.0]
        found.append(
            Figures(
                goal=goal[place],
                call=call[place],
                error=error[place],
                same_kind=float(example.words.kind == asked.kind),
                same_names=len(names.intersection(example.words.names)) / (1 + len(names)),
                brings_names=float(bool(names) and names <= example.came),
                vote=max(of_new),
                least_vote=min(of_new),
                new=log1p(len(new)),
                nothing_new=float(not new),
                known=len(added & texts) / (1 + len(added)),
                agents=log(max(1, example.item.agents)),
                alike=log(alike[added]),
            )
        )
    return found


def chances(of: Sequence[Figures]) -> list[float]:
    """Chance of each that it brings all that the session lacks, 0..1."""
    scores = _BIAS + np.array(of, np.float64).reshape(-1, len(_WEIGHTS)) @ np.array(_WEIGHTS)
    rounded: list[float] = np.round(1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0))), 9).tolist()
    return rounded
