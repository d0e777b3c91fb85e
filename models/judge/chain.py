"""Judge whether a session reached its goal. The cheapest sound judge answers first, and each may abstain.

A wrong "success" is amplified by everything learned from it, so each judge returns None if it is not sure, and the
chain then says "abstained". Judges are pure functions of the trajectory: replaying the log gives the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from fleetlore.stats.hashing import drawn
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Feedback, Source, Trajectory, Verdict

__all__ = ["JudgeChain"]


class _Judge(Protocol):
    """A pure function of a closed trajectory. `audited`: share of other judges' sessions on which it votes too."""

    version: str
    audited: float

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The verdict, or None to abstain."""
        ...


class _ViolationJudge:
    """A broken rule fails a session whatever its reward, and outranks feedback, which would believe that reward."""

    version = "guard-1"
    audited = 0.0

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        return _verdict(0.0, "guard", self) if trajectory.guard else None


class FeedbackJudge:
    """Repeats the latest feedback of somebody else who may give it: it outranks every other judge but the violation.
    Who may is a matter of the broker: it comes by a topic with an access list of its own. People err too, so the
    probability stays inside (0, 1), and the trainer weighs it below an environment's own verdict."""

    version = "feedback-2"
    audited = 0.0
    PROBABILITY: Final = 0.95

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        return self._of(trajectory.correction)

    def own_word(self, trajectory: Trajectory) -> Verdict | None:
        """What the session's agent says of it later; an environment knows better. Of other agents' claims nothing."""
        given = trajectory.feedback
        own = given is not None and principal_of(given.by) == principal_of(trajectory.agent)
        return self._of(given) if own else None

    def _of(self, given: Feedback | None) -> Verdict | None:
        if given is None:
            return None
        probability = self.PROBABILITY if given.label == "success" else 1 - self.PROBABILITY
        return _verdict(probability, "feedback", self, given.by)


class RewardJudge:
    """Repeats the environment: the ending it reported, or else a reward of at least 1 (success) or at most 0 (failure).
    It abstains on a partial reward without an ending, which has no common meaning, and on an ending that contradicts
    the reward."""

    version = "reward-1"
    audited = 0.0

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        ending, reward = trajectory.ending, trajectory.reward
        rewarded = None if reward is None else 1.0 if reward >= 1 else 0.0 if reward <= 0 else None
        ended = {"success": 1.0, "failure": 0.0}.get(ending)
        if ended is not None and rewarded is not None and ended != rewarded:
            return None
        probability = rewarded if ended is None else ended
        return None if probability is None else _verdict(probability, "reward", self)


class RulesJudge:
    """Finds failures that the end of a session gives away where no environment judged it. It never says "success".

    Each rule is sound by itself and held on every source of logged runs where it fired (docs/results/figures.md). The
    stated probability is not measured: it stays below an environment's certainty, because a new source may end its
    sessions in another way.
    """

    version = "rules-2"
    audited = 1 / 32
    PROBABILITY_OF_SUCCESS: Final = 0.05

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        if trajectory.ending == "continued" or not trajectory.steps:
            return None
        rules = (ended_on_a_failed_call, never_got_a_call_through, ended_in_a_loop, gave_up)
        return _verdict(self.PROBABILITY_OF_SUCCESS, "rules", self) if any(rule(trajectory) for rule in rules) else None


class JudgeChain:
    """The violation, feedback, or else the first of `judges` that does not abstain; "abstained" if all do.

    The word of the session's own agent counts only where no environment spoke.

    No judge sees a part of a session that was closed early (`ending == "continued"`): its end is not the session's end.

    On a share of the sessions, drawn by hash, the judges after the deciding one vote too, so that the metric
    `judge_cases` compares them with the environment's reward.
    """

    def __init__(self, judges: Sequence[_Judge] | None = None) -> None:
        self._feedback = FeedbackJudge()
        self._first: tuple[_Judge, ...] = (_ViolationJudge(), self._feedback)
        self._judges: tuple[_Judge, ...] = tuple(judges) if judges is not None else (RewardJudge(), RulesJudge())
        self.version = "+".join(judge.version for judge in self._first + self._judges)

    def judge(self, trajectory: Trajectory) -> Verdict:
        return self.conclude(trajectory, self.votes(trajectory))

    def votes(self, trajectory: Trajectory) -> tuple[Verdict, ...]:
        """Verdicts of the judges that do not abstain, the most trusted first. Feedback may come later, so it is left
        out.
        """
        found: list[Verdict] = []
        if trajectory.ending == "continued" or trajectory.guard:
            return ()  # the reward of a violation measures no judge
        for judge in self._judges:
            if found and not drawn(trajectory.id, judge.audited):
                continue
            verdict = judge.judge(trajectory)
            if verdict is not None:
                found.append(verdict)
        return tuple(found)

    def conclude(self, trajectory: Trajectory, votes: Sequence[Verdict]) -> Verdict:
        """The verdict that counts among the votes on a trajectory, of which only a digest may be left."""
        for judge in self._first if trajectory.ending != "continued" else ():
            verdict = judge.judge(trajectory)
            if verdict is not None:
                return verdict
        if trajectory.ending != "continued" and not (votes and votes[0].source == "reward"):
            votes = [own] if (own := self._feedback.own_word(trajectory)) is not None else votes
        return votes[0] if votes else self.abstained

    @property
    def abstained(self) -> Verdict:
        return Verdict(label="abstained", probability=0.5, source="none", version=self.version)


def ended_on_a_failed_call(trajectory: Trajectory) -> bool:
    """The very last step is a call that failed: nothing was tried, said or decided after it."""
    return trajectory.steps[-1].failed


def never_got_a_call_through(trajectory: Trajectory) -> bool:
    """At least two calls, and not one of them worked."""
    calls = trajectory.calls
    return len(calls) >= 2 and all(call.failed for call in calls)


def ended_in_a_loop(trajectory: Trajectory) -> bool:
    """The very last step is a call that was in a loop (`fleetlore.fingerprint.loops`)."""
    return trajectory.steps[-1].loop is not None


_GAVE_UP = re.compile(
    r"\bI (?:(?:will|must|have to|hereby) )?(?:give|am giving|gave) up\b"
    r"|\bI (?:can ?not|can't|could not|couldn't|am unable to) (?:solve|complete|finish)"
    r" (?:the|this) (?:task|problem)\b",
    re.IGNORECASE,
)


def gave_up(trajectory: Trajectory) -> bool:
    """The agent's last step says literally that it gives up. "I cannot refund this" is not enough: many sessions
    succeed by refusing what a policy forbids."""
    last = trajectory.steps[-1]
    text = last.arguments if last.role == "tool" else last.result
    return last.role != "user" and _GAVE_UP.search(text) is not None


def _verdict(probability: float, source: Source, judge: _Judge, by: str = "") -> Verdict:
    return Verdict(
        label="success" if probability > 0.5 else "failure",
        probability=probability,
        source=source,
        version=judge.version,
        by=by,
    )
