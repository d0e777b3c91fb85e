"""Judges: did this session reach its goal? The cheapest sound judge answers first, and none has to answer.

A wrong "success" is amplified by everything learned from it, so each judge abstains (returns None) where it is not sure, and
the chain says so with the label "abstained" instead of guessing. Judges are pure functions of the trajectory: replaying the
log gives the same verdicts. Measure the rules again with `python benchmarks/judge_and_distiller.py DATA`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from fleetlore.stats.hashing import drawn
from fleetlore.wire.trajectory import Source, Trajectory, Verdict

AUDITED_SHARE = 1 / 32


class Judge(Protocol):
    """A pure function of a closed trajectory."""

    version: str

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The verdict, or None to abstain."""
        ...


class ViolationJudge:
    """A session that broke a rule of the environment (`fleetlore.guard`) is no success, whatever it was rewarded with.

    It outranks all others, feedback too: a reward that a forbidden shortcut buys is what those others would believe.
    """

    version = "guard-1"

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        return _verdict(0.0, "guard", self) if trajectory.guard else None


class FeedbackJudge:
    """The latest word of somebody who knows better than the log: outranks every other judge.

    People err too, so the probability stays inside (0, 1) and the trainer weighs such a verdict below an environment's own.
    """

    version = "feedback-1"
    PROBABILITY: Final = 0.95

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        if trajectory.feedback is None:
            return None
        return _verdict(
            self.PROBABILITY if trajectory.feedback.label == "success" else 1 - self.PROBABILITY, "feedback", self
        )


class RewardJudge:
    """What the environment itself said: the ending it reported, or else a reward of at least 1 (success) or at most 0 (failure).

    A partial reward without an ending has no meaning that all environments share, and an ending that contradicts the reward
    (success with nothing, failure with everything) means that one of them is wrong: both abstain.
    """

    version = "reward-1"

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        ending, reward = trajectory.ending, trajectory.reward
        rewarded = None if reward is None else 1.0 if reward >= 1 else 0.0 if reward <= 0 else None
        ended = {"success": 1.0, "failure": 0.0}.get(ending)
        if ended is not None and rewarded is not None and ended != rewarded:
            return None
        probability = rewarded if ended is None else ended
        return None if probability is None else _verdict(probability, "reward", self)


class RulesJudge:
    """Failures that the end of a session gives away where no environment judged it. It never says "success".

    A rule is here because it is sound by itself and held on every source of logged runs that it fired on, not because it fires
    often. Measured over 22,447 logged runs of five sources with their rewards hidden (`benchmarks/judge_and_distiller.py`):

    | source (sessions, failed) | fired | right | precision (Wilson 95 %) |
    | --- | --- | --- | --- |
    | SQL and shell (7,360, 59 %) | 3,111 | 3,107 | .999 (.997–.999) |
    | Python and ALFWorld (13,818, 78 %) | 646 | 646 | 1.000 (.994–1.000) |
    | search and answer (466, 82 %) | 62 | 62 | 1.000 (.942–1.000) |
    | customer service (713, 37 %) | 2 | 2 | 1.000 (.342–1.000) |
    | multi-agent, failures only (90, 100 %) | 1 | 1 | says nothing |

    So it sees 71 % of the failures in a shell and 6 % of those in Python, and next to none in customer service, where agents
    fail by policy and not by error. The stated probability is no measured rate: it keeps a distance from the certainty of
    an environment's own word, because a new source may end its sessions in another way.
    """

    version = "rules-1"
    PROBABILITY_OF_SUCCESS: Final = 0.05

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        if trajectory.ending == "continued" or not trajectory.steps:
            return None
        rules = (ended_on_a_failed_call, never_got_a_call_through, ended_in_a_loop, gave_up)
        return _verdict(self.PROBABILITY_OF_SUCCESS, "rules", self) if any(rule(trajectory) for rule in rules) else None


class JudgeChain:
    """A broken rule, feedback, or else the first of `judges` that does not abstain; the label "abstained" when all do.

    A part of a session that was closed early (`ending == "continued"`) is judged by nobody: its end is not the session's end,
    and a verdict on the whole says nothing about this part.

    On a share of the sessions, drawn by their hash, those vote too who come after the one that decides: an environment's reward
    then says how often they are right (`models.judge.record`), at a small part of the cost: a critic takes milliseconds.
    """

    def __init__(self, judges: Sequence[Judge] | None = None) -> None:
        self._first: tuple[Judge, ...] = (ViolationJudge(), FeedbackJudge())
        self._judges: tuple[Judge, ...] = tuple(judges) if judges is not None else (RewardJudge(), RulesJudge())
        self.version = "+".join(judge.version for judge in self._first + self._judges)

    def judge(self, trajectory: Trajectory) -> Verdict:
        return self.conclude(trajectory, self.votes(trajectory))

    def votes(self, trajectory: Trajectory) -> tuple[Verdict, ...]:
        """What those say who do not abstain, the most trusted first. Feedback is left out, for it may come later."""
        found: list[Verdict] = []
        if trajectory.ending == "continued" or trajectory.guard:
            return ()  # and a reward that was bought is no measure of who is right
        for judge in self._judges:
            verdict = judge.judge(trajectory)
            if verdict is not None:
                found.append(verdict)
                if len(found) == 1 and not drawn(trajectory.id, AUDITED_SHARE):
                    break
        return tuple(found)

    def conclude(self, trajectory: Trajectory, votes: Sequence[Verdict]) -> Verdict:
        """The verdict that counts among the votes on a trajectory, of which by now no more than a digest may be left."""
        for judge in self._first if trajectory.ending != "continued" else ():
            verdict = judge.judge(trajectory)
            if verdict is not None:
                return verdict
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
    """The session ends inside a repetition: the same (call, result) pairs three times in a row, with a period of 1, 2 or 3.

    Results are compared as well as calls, so that polling, where the same call gives another result, is no loop; a call
    that returns nothing is none either (a scratch pad repeats without being stuck).
    """
    if trajectory.steps[-1].role != "tool":
        return False
    pairs = [(step.tool, step.arguments, step.result, step.error_message) for step in trajectory.calls[-9:]]
    return any(
        len(pairs) >= 3 * period
        and pairs[-period:] == pairs[-2 * period : -period] == pairs[-3 * period : -2 * period]
        and all(result or error for _, _, result, error in pairs[-period:])
        for period in (1, 2, 3)
    )


_GAVE_UP = re.compile(
    r"\bI (?:(?:will|must|have to|hereby) )?(?:give|am giving|gave) up\b"
    r"|\bI (?:can ?not|can't|could not|couldn't|am unable to) (?:solve|complete|finish) (?:the|this) (?:task|problem)\b",
    re.IGNORECASE,
)


def gave_up(trajectory: Trajectory) -> bool:
    """The agent's last step says so in as many words.

    "I cannot refund this" is not enough: refusing what a policy forbids is how many sessions succeed.
    """
    last = trajectory.steps[-1]
    text = last.arguments if last.role == "tool" else last.result
    return last.role != "user" and _GAVE_UP.search(text) is not None


def _verdict(probability: float, source: Source, judge: Judge) -> Verdict:
    return Verdict(
        label="success" if probability > 0.5 else "failure",
        probability=probability,
        source=source,
        version=judge.version,
    )
