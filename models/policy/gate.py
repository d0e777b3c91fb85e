"""Decide whether a version of the policy adapter may go into service.

A candidate learned the older pairs and is asked about the newer ones (prequential evaluation, Dawid 1984). Its margin,
log p(worked) - log p(failed), must exceed that of the model alone, by a bet that may be read at any time. A task counts
once, however many sessions try it. The candidate must also be no worse than the version in service. Its perplexity on a
fixed unrelated text measures forgetting, and may rise by at most `_MOST_FORGOTTEN`.

A share of the agents then tries the version (`CanaryTrial`). It is promoted on evidence that it costs less than
`_MARGIN` of success, and aborted on evidence that it costs any, or without enough votes. A principal has one vote a
minute, and only under the version assigned to it. No decision depends on a single principal.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fleetlore.wire.adapter_manifest import in_cohort
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Judgment
from models.calls.gate import GateReport
from models.policy.pairs import Pair

__all__ = ["CanaryTrial", "judge_policy", "split"]

_MOST_FORGOTTEN = 0.02
# Nats by which a candidate may be behind the published version.
_TOLERANCE = 0.1
# Later pairs below which nothing is decided.
LEAST = 12
# Share of the pairs held out to ask a candidate about.
_LATER = 0.2
# Probability of publishing an adapter that is no better than the model alone, of promoting a version that costs
# `_MARGIN` of success, or of aborting a harmless one.
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
    """Judge a candidate by later pairs. `base`, `candidate`, `published`: their margins by the model alone, by the
    candidate, and by the version in service, if any. `perplexity`: of the unrelated text, by the first two.
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
    if figures["perplexity_change"] > _MOST_FORGOTTEN:
        return GateReport("forgets", figures)
    if figures["log_evidence"] < -math.log(_ALPHA):
        return GateReport("no_gain", figures)
    if published is not None and figures["margin"] < figures["margin_published"] - _TOLERANCE:
        return GateReport("worse_than_published", figures)
    return GateReport("better", figures)


def log_wealth(gains: Sequence[float]) -> float:
    """Log of the wealth from bets on gains, clipped to -1..1, against "given the past, their mean is at most 0".

    If that is true, the wealth ever reaches 1 / alpha with probability alpha at most (Ville's inequality). So a
    test may be read while data arrive (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
    betting").
    """
    return _mean_wealth(_log_factors(gains).sum(axis=1))


def _log_factors(gains: Sequence[float]) -> np.ndarray:
    return np.asarray(np.log1p(np.multiply.outer(_STAKES, np.clip(gains, -1, 1))))


def _mean_wealth(logs: np.ndarray) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))


_Decision = Literal["promote", "abort", "waiting"]
_Vote = tuple[str, bool]  # a principal, and whether its session succeeded

_MARGIN = 0.1
_PATIENCE_SECONDS = 7200.0
VOTE_SECONDS = 60.0


class CanaryTrial:
    """One version, on a share of the agents, against the running one. All times are of one monotonic clock."""

    def __init__(self, canary: str, stable: str, share: float, began: float) -> None:
        self.canary = canary
        self.stable = stable
        self._share = share
        self._began = began
        self._votes: dict[str, list[_Vote]] = {canary: [], stable: []}
        self._voted: set[tuple[str, int]] = set()
        self._seen: set[str] = set()

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Votes and successes under each version."""
        return {version: (len(votes), sum(won for _, won in votes)) for version, votes in self._votes.items()}

    def add(self, judgment: Judgment, now: float) -> None:
        """Count a session under the version that it ran last; a repeated one changes nothing."""
        trajectory = judgment.trajectory
        agent = principal_of(trajectory.agent)
        version = next((step.adapter for step in reversed(trajectory.steps) if step.adapter is not None), None)
        # The session reports its version. Its principal's name decides whether it should try the canary.
        if version != (self.canary if in_cohort(agent, self._share, self.canary) else self.stable):
            return
        vote = agent, int((now - self._began) // VOTE_SECONDS)
        if judgment.verdict.label == "abstained" or trajectory.id in self._seen or vote in self._voted:
            return
        self._seen.add(trajectory.id)
        self._voted.add(vote)
        self._votes[version].append((agent, judgment.verdict.label == "success"))

    def decide(self, now: float) -> _Decision:
        pairs = list(zip(self._votes[self.canary], self._votes[self.stable], strict=False))
        lost = [int(stable) - int(canary) for (_, canary), (_, stable) in pairs]
        harmless = [(_MARGIN - each) / (1 + _MARGIN) for each in lost]
        logs = np.stack([_log_factors(lost), _log_factors(harmless)])
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, pair in enumerate(pairs):
            for agent in {agent for agent, _ in pair}:
                places[agent].append(place)
        whole = logs.sum(axis=2)
        found = _evidence(whole)
        # Drop a principal's pairs with it: pairing the others' votes anew would change the result by chance.
        without = (_evidence(whole - logs[:, :, own].sum(axis=2)) for own in places.values())
        if found != "waiting" and all(each == found for each in without):
            return found
        return "abort" if now - self._began >= _PATIENCE_SECONDS else "waiting"


def _evidence(logs: np.ndarray) -> _Decision:
    harm, harmless = (_mean_wealth(each) >= -math.log(_ALPHA) for each in logs)
    return "abort" if harm else "promote" if harmless else "waiting"
