"""Measure forgetting: what an arm still knows of old domains after 100 updates on new ones, and what it has learned of
those.

An update is one batch of `BATCH` judged sessions of the new domains, for every arm the same. Before and after all of
them each arm is asked, at every step of sessions that it never learned from, about the call that was made there. What
it is asked for is a
ranking: the policy's P(fails) where there is one, minus what the agent reads in the texts
(`benchmarks.evaluate.arms.reading`). The figure is the AUROC of that ranking against what happened; an arm without an
opinion has 0.5.

forgetting = AUROC on old domains before − after, in points of 100; gain = AUROC on new domains after − before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.auroc import auroc
from benchmarks.demo.world import NETWORK
from benchmarks.evaluate.arms.agent import Mind, caution
from benchmarks.evaluate.arms.memory import Memory, Situation
from benchmarks.evaluate.worlds.recorded import Recorded, step_of
from benchmarks.evaluate.worlds.world import Call, Environment, Reply

BATCH = 32
# Of the old domains, before the new ones come.
OLD_UPDATES = 20
NEW_UPDATES = 100
PROBED_SESSIONS = 60


@dataclass(frozen=True, slots=True)
class Forgetting:
    """AUROC of an arm's ranking, before and after."""

    old_before: float
    old_after: float
    new_before: float
    new_after: float

    @property
    def forgetting_pp(self) -> float:
        return 100 * (self.old_before - self.old_after)

    @property
    def gain_pp(self) -> float:
        return 100 * (self.new_after - self.new_before)


@dataclass(frozen=True, slots=True)
class Probe:
    """A session that nobody learns from, with the calls that the agent could think of at each step."""

    session: Recorded
    candidates: tuple[tuple[Call, ...], ...]

    @classmethod
    def of(cls, session: Recorded, environment: Environment) -> Probe:
        """Live through the session once more. `environment`: the same one, fresh."""
        candidates = []
        for call, _ in session.steps:
            candidates.append(tuple(proposal.call for proposal in environment.proposals()))
            environment.perform(call)
        return cls(replace(session, id=f"probe-{session.id}"), tuple(candidates))


async def foresight(memory: Memory, probes: Sequence[Probe]) -> float:
    """How well the arm ranks the calls that fail above those that work; 0.5 for an arm without an opinion."""
    scores: list[float] = []
    failed: list[bool] = []
    for probe in probes:
        session = probe.session
        mind = Mind(session.agent, session.id, keeps_log=False)
        situation = Situation(session.id, session.agent, session.task, session.goal)
        await memory.begin(situation)
        for place, ((call, reply), candidates) in enumerate(zip(session.steps, probe.candidates, strict=True)):
            situation.candidates = candidates
            if reply.fault != NETWORK and call in candidates:
                recall = memory.recall(situation)
                at = candidates.index(call)
                worth = mind.told(candidates, recall)[at] + caution(recall.risks, candidates)[at]
                scores.append(-worth)
                failed.append(reply.failed)
            await memory.act(call, _Replay(reply))
            mind.take_in(call, reply, progress=False)
            situation.steps.append(step_of(place + 1, call, reply))
    found = auroc(scores, failed)
    return float("nan") if found is None else found


class _Replay:
    """Answers what was answered."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def perform(self, call: Call) -> Reply:
        return self._reply
