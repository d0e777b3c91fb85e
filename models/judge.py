"""Judge a session, and merge its records into its state.

Its trajectory, corrections and opinions arrive in any order and more than once. Merging keeps the one of each that
counts. The state also remembers the items taught: a later verdict may withdraw them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from fleetlore.wire.lore import ItemKind
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import drawn
from fleetlore.wire.trajectory import Feedback, JsonStruct, Source, Step, Trajectory, Verdict, encode
from models.memory.candidate import Candidate, origin

__all__ = ["JudgeChain", "Opinion", "SessionState"]

# Item ids remembered of a session: with its digest they fit a store's field. Items beyond stay taught.
MAX_TAUGHT = 64


class Opinion(JsonStruct, frozen=True, kw_only=True, gc=False, tag="opinion"):
    """A model's verdict on the session `Trajectory.id`. It does not hold for one of more `events`."""

    session: str
    events: int
    verdict: Verdict


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Single writer per session.

    `trajectory`: None while only a correction has arrived; a digest once stored. `feedback`: the newest correction.
    `taught`: items that the session has contributed to, with their kind.
    """

    trajectory: Trajectory | None = None
    feedback: Feedback | None = None
    votes: tuple[Verdict, ...] = ()
    opinion: Opinion | None = None
    taught: dict[str, ItemKind] = {}

    def merge(self, value: Trajectory | Feedback | Opinion) -> bool:
        """Return whether it was the whole session."""
        if isinstance(value, Opinion):
            known = self.opinion
            # The winner of two opinions on the same events must not depend on the order.
            if known is None or (value.events, value.to_json()) > (known.events, known.to_json()):
                self.opinion = value
            return False
        feedback = value if isinstance(value, Feedback) else value.feedback
        if feedback is not None:
            self.feedback = feedback.newest(self.feedback)
        fresh = isinstance(value, Trajectory) and (self.trajectory is None or _replaces(value, self.trajectory))
        if fresh:
            assert isinstance(value, Trajectory)
            self.trajectory = value
        if self.trajectory is not None and self.trajectory.feedback != self.feedback:
            self.trajectory = replace(self.trajectory, feedback=self.feedback)
        return fresh

    @property
    def said(self) -> tuple[Verdict, ...]:
        if self.opinion is None or self.trajectory is None or self.opinion.events != self.trajectory.events:
            return self.votes
        return (*self.votes, self.opinion.verdict)

    def teach(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the contributions under the current verdict, and withdrawals of earlier ones."""
        assert self.trajectory is not None, "nothing is taught by a session that has not come"
        now = {each.item_id: each for each in candidates}
        gone = [
            Candidate(**origin(self.trajectory), item_id=id, kind=kind, side="withdrawn")
            for id, kind in self.taught.items()
            if id not in now
        ]
        for id, each in now.items():
            if len(self.taught) < MAX_TAUGHT:
                self.taught.setdefault(id, each.kind)
        return [*now.values(), *gone]

    def to_json(self, trajectory: bytes | None = None) -> bytes:
        """A given `trajectory` saves most work."""
        if trajectory is None:
            return encode(self)
        rest = {name: getattr(self, name) for name in ("votes", "opinion", "taught")}
        return encode({"trajectory": msgspec.Raw(trajectory)} | {name: value for name, value in rest.items() if value})

    @classmethod
    def from_json(cls, value: bytes | str) -> SessionState:
        state = _read(value)
        if state.trajectory is not None:
            state.feedback = state.trajectory.feedback
        return state


def _replaces(new: Trajectory, known: Trajectory) -> bool:
    if new.claim != known.claim:
        return new.claim > known.claim
    # The same number of events: the whole session, of which only a digest was stored.
    return (new.events, not new.is_open) >= (known.events, not known.is_open)


_read = msgspec.json.Decoder(SessionState).decode


class Judge(NamedTuple):
    """`rule` returns P(success) of a closed trajectory, or None to abstain. `audited`: share of other judges' sessions
    on which it votes too, for the metric `judge_cases`."""

    source: Source
    version: str
    rule: Callable[[Trajectory], float | None]
    audited: float = 0.0

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        probability = self.rule(trajectory)
        return None if probability is None else _verdict(probability, self.source, self.version)


def _rewarded(trajectory: Trajectory) -> float | None:
    """The environment's ending, or a reward of 1 or 0. It abstains if both contradict, or on a part of a reward."""
    ending, reward = trajectory.ending, trajectory.reward
    rewarded = None if reward is None else 1.0 if reward >= 1 else 0.0 if reward <= 0 else None
    ended = {"success": 1.0, "failure": 0.0}.get(ending)
    if ended is not None and rewarded is not None and ended != rewarded:
        return None
    return rewarded if ended is None else ended


def _gave_itself_away(trajectory: Trajectory) -> float | None:
    """A failure that the end of a session gives away. Each rule held on every source of logged runs."""
    if trajectory.ending == "continued" or not trajectory.steps:
        return None
    last, calls = trajectory.steps[-1], trajectory.calls
    got_nowhere = len(calls) >= 2 and all(call.failed for call in calls)
    return 0.05 if last.failed or last.loop is not None or got_nowhere or gave_up(last) else None


REWARD, RULES = Judge("reward", "reward-1", _rewarded), Judge("rules", "rules-2", _gave_itself_away, audited=1 / 32)
# A broken rule fails a session whatever its reward. It outranks feedback, which may believe the reward.
_GUARD, _FEEDBACK = "guard-1", "feedback-2"
_FEEDBACK_IS_RIGHT = 0.95


class JudgeChain:
    """The violation, the feedback (the agent's own only without an environment), or the first judge's verdict."""

    def __init__(self, judges: Sequence[Judge] = (REWARD, RULES)) -> None:
        self._judges = tuple(judges)
        self.version = "+".join([_GUARD, _FEEDBACK, *(judge.version for judge in judges)])

    def judge(self, trajectory: Trajectory) -> Verdict:
        return self.conclude(trajectory, self.votes(trajectory))

    def votes(self, trajectory: Trajectory) -> tuple[Verdict, ...]:
        """Verdicts of judges that do not abstain, the most trusted first, without feedback."""
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
        if trajectory.ending == "continued":
            return votes[0] if votes else self.abstained
        if trajectory.guard:
            return _verdict(0.0, "guard", _GUARD)
        given = trajectory.correction
        if given is None and not (votes and votes[0].source == "reward"):
            claimed = trajectory.feedback
            own = claimed is not None and principal_of(claimed.by) == principal_of(trajectory.agent)
            given = claimed if own else None  # an environment outranks the agent's own word
        if given is not None:
            right = _FEEDBACK_IS_RIGHT if given.label == "success" else 1 - _FEEDBACK_IS_RIGHT
            return _verdict(right, "feedback", _FEEDBACK, given.by)
        return votes[0] if votes else self.abstained

    @property
    def abstained(self) -> Verdict:
        return Verdict(label="abstained", probability=0.5, source="none", version=self.version)


_GAVE_UP = re.compile(
    r"\bI (?:(?:will|must|have to|hereby) )?(?:give|am giving|gave) up\b"
    r"|\bI (?:can ?not|can't|could not|couldn't|am unable to) (?:solve|complete|finish)"
    r" (?:the|this) (?:task|problem)\b",
    re.IGNORECASE,
)


def gave_up(last: Step) -> bool:
    """The last step says literally that the agent gives up. Many succeed by refusing what a policy forbids."""
    text = last.arguments if last.role == "tool" else last.result
    return last.role != "user" and _GAVE_UP.search(text) is not None


def _verdict(probability: float, source: Source, version: str, by: str = "") -> Verdict:
    label: Literal["success", "failure"] = "success" if probability > 0.5 else "failure"
    return Verdict(label=label, probability=probability, source=source, version=version, by=by)
