"""Try a version on a share of the agents, and decide by how their sessions end.

The trial asks whether sessions under the new version end as well. Votes are paired as they come, one under each
version, and each difference is a bet, so the trial may be read after every pair. The version is promoted on evidence
that it costs less than `_MARGIN` of success, and aborted on evidence that it costs any. Without enough votes it is
aborted in the end: missing data is no success. A principal has one vote a minute, however many sessions its agents end,
and only under the version assigned to it. A decision holds without any one principal: nobody alone promotes a version,
or takes one back before the time is up. An agent that fails on purpose withholds a version only while it is drawn to
try it, and each version is tried by others.
"""

from __future__ import annotations

import math
from typing import Literal

from fleetlore.wire.adapter_manifest import in_cohort
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Judgment
from models.policy.gate import log_wealth

__all__ = ["CanaryTrial"]

_Decision = Literal["promote", "abort", "waiting"]
_Vote = tuple[str, bool]  # a principal, and whether its session succeeded

_MARGIN = 0.1
# Probability of promoting a version that costs `_MARGIN` of success, or of aborting a harmless one.
_ALPHA = 0.05
_PATIENCE_SECONDS = 7200.0
# A principal has one vote in so many seconds of the trial.
VOTE_SECONDS = 60.0


class CanaryTrial:
    """One version, on a share of the agents, against the running one; sessions of other versions are ignored.

    `began` and each `now` are on one monotonic clock.
    """

    def __init__(self, canary: str, stable: str, share: float, began: float) -> None:
        self.canary = canary
        self.stable = stable
        self._share = share
        self._began = began
        # By version, as they came.
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
        found = self._evidence(pairs)
        agents = {agent for pair in pairs for agent, _ in pair} if found != "waiting" else ()
        # Drop a principal's pairs with it: pairing the others' votes anew would change the result by chance.
        without = ([pair for pair in pairs if agent not in (pair[0][0], pair[1][0])] for agent in agents)
        if agents and all(self._evidence(rest) == found for rest in without):
            return found
        return "abort" if now - self._began >= _PATIENCE_SECONDS else "waiting"

    def _evidence(self, pairs: list[tuple[_Vote, _Vote]]) -> _Decision:
        lost = [int(stable) - int(canary) for (_, canary), (_, stable) in pairs]
        needed = -math.log(_ALPHA)
        if log_wealth(lost) >= needed:
            return "abort"
        if log_wealth([(_MARGIN - each) / (1 + _MARGIN) for each in lost]) >= needed:
            return "promote"
        return "waiting"
