"""Decide whether a version of the policy adapter may go into service.

A candidate learned the older pairs and is asked about the newer ones (prequential evaluation, Dawid 1984). Its margin,
log p(worked) - log p(failed), must exceed that of the model alone, by a bet that may be read at any time. A task counts
once, however many sessions try it. The candidate must also be no worse than the version in service. Its perplexity on a
fixed unrelated text measures forgetting, and may rise by at most `MOST_FORGOTTEN`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from models.calls.gate import GateReport
from models.policy.pairs import Pair

__all__ = ["judge_policy", "log_wealth", "split"]

MOST_FORGOTTEN = 0.02
# Nats by which a candidate may be behind the published version.
TOLERANCE = 0.1
# Later pairs below which nothing is decided.
LEAST = 12
# Share of the pairs held out to ask a candidate about.
_LATER = 0.2
# Probability of publishing an adapter that is no better than the model alone.
_ALPHA = 0.05
# Shares of the wealth that a bet may lose. The wealth is the mean over all: one is nearly the best.
_STAKES = np.linspace(0.05, 0.95, 19)


def split(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Return the older pairs to learn, and the newer ones to ask about. No session is on both sides."""
    place = len(pairs) - max(LEAST, math.ceil(_LATER * len(pairs)))
    if place <= 0:
        return [], list(pairs)
    older, later = list(pairs[:place]), list(pairs[place:])
    asked = {pair.sessions[0] for pair in later}
    return [pair for pair in older if pair.sessions[0] not in asked], later


def judge_policy(
    later: Sequence[Pair],
    base: Sequence[float],
    candidate: Sequence[float],
    published: Sequence[float] | None,
    perplexity: tuple[float, float],
) -> GateReport:
    """Judge a candidate by pairs that it has not learned.

    Args:
        base: margins of the later pairs by the model alone; `candidate`: by the candidate.
        published: by the version in service, None without one.
        perplexity: of the unrelated text, by the model alone and by the candidate.
    """
    before, after = perplexity
    figures = {"pairs_later": float(len(later)), "perplexity_change": after / before - 1}
    if len(later) < LEAST:
        return GateReport("too_few", figures)
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for pair, alone, adapted in zip(later, base, candidate, strict=True):
        gains[pair.task].append(adapted - alone)
    figures |= {
        "margin": float(np.mean(candidate)),
        "margin_base": float(np.mean(base)),
        "tasks": float(len(gains)),
        "log_evidence": log_wealth([float(np.mean(each)) for each in gains.values()]),
    }
    if published is not None:
        figures["margin_published"] = float(np.mean(published))
    if figures["perplexity_change"] > MOST_FORGOTTEN:
        return GateReport("forgets", figures)
    if figures["log_evidence"] < -math.log(_ALPHA):
        return GateReport("no_gain", figures)
    if published is not None and figures["margin"] < figures["margin_published"] - TOLERANCE:
        return GateReport("worse_than_published", figures)
    return GateReport("better", figures)


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth from bets on gains, clipped to -1..1, against "given the past, their mean is at most 0".

    If that is true, the wealth ever reaches 1 / alpha with probability alpha at most (Ville's inequality). So a
    decision may be taken as soon as it does, and a test may run as long as data arrive (Waudby-Smith and Ramdas 2024,
    "Estimating means of bounded random variables by betting").
    """
    logs = np.log1p(np.multiply.outer(_STAKES, np.clip(gains, -1, 1))).sum(axis=1)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))
