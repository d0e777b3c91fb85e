"""Measure how often each judge is right, by version and family of tools, from feedback and rewards.

Every session with feedback or a reward is a case for each judge that voted on it, whether or not its verdict counted. A
case follows from what is known of its session, so it counts once in any order; a bounded sample is kept
(`models.memory.bottom_k`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import wilson
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory, Verdict, encode
from models.memory.bottom_k import LatestSample, even

__all__ = ["JudgeRecord", "cases_of", "measurable", "tool_family"]

SAMPLED_CASES = 256
# A label of a judge is silenced if it is wrong more often than this at the lower end of the 95 % interval (Wilson): a
# verdict that teaches claims to be right four times of five (`models.memory.candidate`).
_MOST_WRONG = 0.2
FEWEST_CASES = 8
_MAX_FAMILY = 64


class Case(NamedTuple):
    """What a judge said of one session, and the truth; the greatest of several counts.

    Attributes:
        revision: of the session, as in `Trajectory.revision`.
        said, truth: `success` or `failure`; both empty if the session is no longer a case.
        agent: hash of its name.
    """

    revision: tuple[int, float]
    said: str = ""
    truth: str = ""
    agent: int = 0


def _no_case(agent: int) -> Case:
    return Case((0, 0.0), agent=agent)


class JudgeRecord:
    """The cases of one version of a judge in one family of tools; merging commutes and is idempotent."""

    def __init__(self, source: str, version: str, family: str, cases: Iterable[tuple[int, Case]] = ()) -> None:
        self.source, self.version, self.family = source, version, family
        self.cases: LatestSample[Case] = LatestSample(SAMPLED_CASES, _no_case, cases)
        self._silenced: frozenset[str] | None = None

    def add(self, session: str, case: Case) -> bool:
        """Say whether anything changed. An empty case changes something only if the session was a case."""
        place = stable_hash(session)
        changed = bool(case.truth or place in self.cases.kept) and self.cases.add(place, case)
        if changed:
            self._silenced = None
        return changed

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions out as if they had never been; say whether any was a case."""
        self._silenced = None
        return self.cases.discard(sessions)

    def merge(self, other: JudgeRecord) -> bool:
        self._silenced = None
        return self.cases.merge(other.cases)

    @property
    def matrix(self) -> Counter[tuple[str, str]]:
        """(said, truth) → kept sessions."""
        return Counter((case.said, case.truth) for case in self.cases.kept.values() if case.truth)

    @property
    def _counted(self) -> defaultdict[tuple[str, str], float]:
        """The matrix of all sessions, in which no agent counts for more than the median one: a reward is what an agent
        says, and by many lies it could silence a judge for all.
        """
        cases = [each for each in self.cases.kept.values() if each.truth]
        return even([(each.agent, (each.said, each.truth)) for each in cases], {})

    @property
    def silenced(self) -> frozenset[str]:
        """Labels that this judge may not use any more: `success`, `failure`, both or neither."""
        if self._silenced is None:
            matrix = self._counted
            self._silenced = frozenset(
                [
                    said
                    for said, other in (("success", "failure"), ("failure", "success"))
                    if matrix[said, other] + matrix[said, said] >= FEWEST_CASES
                    and wilson(matrix[said, other], matrix[said, other] + matrix[said, said])[0] > _MOST_WRONG
                ]
            )
        return self._silenced

    def precision(self, said: str) -> float | None:
        """Lower end of the 95 % interval of how often `said` is right; None before it was measured."""
        matrix = self._counted
        right, cases = matrix[said, said], sum(count for (claim, _), count in matrix.items() if claim == said)
        return wilson(right, cases)[0] if cases >= FEWEST_CASES else None

    def to_json(self) -> bytes:
        return encode(_Kept(self.source, self.version, self.family, self.cases.sorted()))

    @classmethod
    def from_json(cls, value: bytes | str) -> JudgeRecord:
        """Raises msgspec.DecodeError (a ValueError) if it is no record."""
        kept = _read(value)
        return cls(kept.source, kept.version, kept.family, kept.cases)


class _Kept(msgspec.Struct, gc=False):
    """A `JudgeRecord` as it is stored."""

    source: str
    version: str
    family: str
    cases: list[tuple[int, Case]]


_read = msgspec.json.Decoder(_Kept).decode


def tool_family(trajectory: Trajectory) -> str:
    """The server whose tools the session called most, or the tool if it names none; empty without a call.

    A name like `github__create_issue`, `fs.read` or `mcp:fs/read` begins with its server.
    """
    counts: dict[str, int] = {}
    for step in trajectory.steps:
        if step.role == "tool":
            counts[step.tool] = counts.get(step.tool, 0) + 1
    if not counts:
        return ""
    tool = min(counts, key=lambda each: (-counts[each], each))
    for mark in ("__", "/", "."):
        tool = tool.partition(mark)[0] or tool
    return tool[:_MAX_FAMILY]


def measurable(trajectory: Trajectory, votes: Iterable[Verdict]) -> list[Verdict]:
    """The votes that can be measured: only feedback contradicts an environment's own."""
    return [vote for vote in votes if vote.source != "reward" or trajectory.correction is not None]


def cases_of(
    trajectory: Trajectory, votes: Sequence[Verdict], before: Sequence[Verdict]
) -> Iterator[tuple[Verdict, Case]]:
    """For each judge that votes on the session, or voted `before`, its case.

    The truth is the feedback, or else the environment's reward.
    """
    if not before and len(votes) <= 1 and trajectory.correction is None:
        return
    agent = stable_hash(principal_of(trajectory.agent))
    truth = trajectory.correction or next((vote for vote in votes if vote.source == "reward"), None)
    now = {vote.version: vote for vote in measurable(trajectory, votes)}
    for version, vote in ({vote.version: vote for vote in measurable(trajectory, before)} | now).items():
        if truth is None or version not in now:
            yield vote, Case(trajectory.revision, agent=agent)
        else:
            yield vote, Case(trajectory.revision, vote.label, truth.label, agent)
