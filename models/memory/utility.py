"""Measure what a memory item is worth: how sessions end that were shown it, against those from which it was withheld.

Sessions that recall an item differ from those that do not, so plain success rates would credit an item for its tasks.
Among sessions that *would* be shown it, the draw is random (`fleetlore.stats.hashing`), so the difference of the arms
is its effect. Items recalled together are drawn independently: each adds variance to the other but no bias (a factorial
experiment; Fisher 1935). The arm never depends on what the session did later: intention to treat. Counts are sets of
sessions, one bounded sample an arm (`models.memory.bottom_k`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import fsum
from typing import NamedTuple

import msgspec

from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import newcombe
from fleetlore.wire.trajectory import Judgment, encode
from models.memory.bottom_k import LatestSample
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, is_item

# Sessions kept of each arm: the standard error of an uplift is at most .05, and a state fits its field of the store.
ARM_SESSIONS = 192
# Sessions below which an arm gives no uplift.
LEAST_SESSIONS = 10
# Of the hash of an agent so much is kept: more does not fit into the field.
AGENTS = 2**24
_FIGURES = ("shown", "shown well", "withheld", "withheld well")


class Row(NamedTuple):
    """One session of an arm, as it is stored: its hash, events and time of the correction (`Trial.revision`)."""

    session: int
    events: int
    corrected: float
    outcome: int
    agent: int = 0


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="evidence"):
    """How one session ended that was shown an item, or from which it was withheld.

    Attributes:
        revision: as in `models.memory.candidate.Candidate`.
        outcome: 1 it succeeded, 0 it failed, -1 unsure: it counts nowhere and replaces an earlier outcome.
        agent: the name.
    """

    item_id: str
    tenant: str
    session: str
    revision: tuple[int, float]
    shown: bool
    outcome: int
    agent: str = ""

    def to_json(self) -> bytes:
        return encode(self)


class Trial(NamedTuple):
    """The newest verdict on one session; the greater of two counts."""

    revision: tuple[int, float]
    outcome: int
    agent: int = 0


def _no_trial(agent: int) -> Trial:
    return Trial((0, 0.0), -1, agent)


class Uplift(NamedTuple):
    """Difference of two success rates, shown less withheld, and its 95 % interval; all in -1..1.

    The interval is as wide as it takes to hold without any one of the agents: an agent says itself what it was shown
    and how it ended, and could make an item help or harm by its own word.
    """

    estimate: float
    low: float
    high: float


def utility_evidence(judgment: Judgment) -> list[Evidence]:
    """One piece of evidence for each learned item that was shown or withheld, sorted by id."""
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    shown = {id for step in trajectory.steps for id in step.advice}
    withheld = {id for step in trajectory.steps for id in step.withheld}
    return [
        Evidence(
            item_id=id,
            tenant=trajectory.tenant,
            session=trajectory.session,
            revision=trajectory.revision,
            shown=id in shown,
            outcome=1 if probability > SUCCESS_ABOVE else 0 if probability < FAILURE_BELOW else -1,
            agent=trajectory.agent,
        )
        # An item in both arms counts in neither: the share changed while the session ran.
        for id in sorted(shown ^ withheld)
        if is_item(id)
    ]


@dataclass(slots=True)
class Trials:
    """Bounded samples of the sessions of both arms. Merging commutes, associates and is idempotent."""

    shown: LatestSample[Trial] = field(default_factory=lambda: LatestSample(ARM_SESSIONS, _no_trial))
    withheld: LatestSample[Trial] = field(default_factory=lambda: LatestSample(ARM_SESSIONS, _no_trial))

    def add(self, evidence: Evidence) -> bool:
        """Merge one session in; say whether anything changed."""
        arm = self.shown if evidence.shown else self.withheld
        trial = Trial(evidence.revision, evidence.outcome, stable_hash(evidence.agent) % AGENTS)
        return arm.add(stable_hash(evidence.session), trial)

    def merge(self, other: Trials) -> bool:
        """Merge other trials in; say whether anything changed."""
        return any([self.shown.merge(other.shown), self.withheld.merge(other.withheld)])

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions out as if they had never been; say whether any was there."""
        return any([self.shown.discard(sessions), self.withheld.discard(sessions)])

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        """Hashes of the sessions of some agents (hashes of their names)."""
        named = {agent % AGENTS for agent in agents}
        kept = (*self.shown.kept.items(), *self.withheld.kept.items())
        return {session for session, trial in kept if trial.agent in named}

    @property
    def shown_sessions(self) -> int:
        """How many sessions were shown the item; an estimate above `ARM_SESSIONS`."""
        scales = self.shown.scales
        return round(fsum([scales[trial.agent] for trial in self.shown.kept.values() if trial.agent >= 0]))

    @property
    def uplift(self) -> Uplift | None:
        """None where an arm has fewer than `LEAST_SESSIONS` sessions, or has without those of one agent."""
        of_agent: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for arm in ("shown", "withheld"):
            for trial in getattr(self, arm).kept.values():
                if trial.outcome >= 0:
                    of_agent[trial.agent].update({arm: 1, f"{arm} well": trial.outcome})
        total = sum(of_agent.values(), Counter[str]())
        # Agents with equal figures leave the same behind.
        rests = {tuple(total[name] - own[name] for name in _FIGURES) for own in of_agent.values()}
        if min([total["shown"], total["withheld"], *(min(rest[0], rest[2]) for rest in rests)]) < LEAST_SESSIONS:
            return None
        estimate = total["shown well"] / total["shown"] - total["withheld well"] / total["withheld"]
        found = [newcombe((rest[0], rest[1]), (rest[2], rest[3])) for rest in rests]
        return Uplift(estimate, min(low for low, _ in found), max(high for _, high in found))

    def to_rows(self) -> tuple[list[Row], list[Row]]:
        """The sessions of both arms: equal trials give equal rows."""
        shown, withheld = (
            [Row(session, *trial.revision, trial.outcome, trial.agent) for session, trial in arm.sorted()]
            for arm in (self.shown, self.withheld)
        )
        return shown, withheld

    @classmethod
    def from_rows(cls, shown: Iterable[Row], withheld: Iterable[Row]) -> Trials:
        return cls(_arm(shown), _arm(withheld))


def _arm(rows: Iterable[Row]) -> LatestSample[Trial]:
    return LatestSample(
        ARM_SESSIONS,
        _no_trial,
        [(row.session, Trial((row.events, row.corrected), row.outcome, row.agent)) for row in rows],
    )
