"""What is known of one session (or part of a long one): the mergeable state behind its judgment.

Its trajectory, corrections and opinions arrive in any order, more than once, and the trajectory may come again with more
events. Merging takes of each the one that counts, so what is judged in the end follows from the set of what came. It also
remembers everything that the session has ever taught: what its last verdict does not teach any more has to be taken back, and a
worker that died between writing this state and sending the withdrawals must be able to send them again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from fleetlore.wire.lore import ItemKind
from fleetlore.wire.trajectory import Feedback, Trajectory, Verdict, encode
from models.judge.llm_opinion import Notes, Opinion
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, origin

# Ids remembered of what a session taught; with its digest they fit a field of the store. A session teaches few items, and only
# one that is judged again and again, each time otherwise, gets near this. The rest stays taught.
MAX_TAUGHT = 64


class Noted(msgspec.Struct, frozen=True, gc=False):
    """Which items a model's notes contribute to; `events` and `label` as in `Notes`."""

    events: int
    label: str
    items: dict[str, ItemKind]


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Single writer per session.

    Attributes:
        trajectory: None while only a correction has come; cut to its digest once it was stored.
        feedback: the newest correction.
        votes: what the judges said of the whole trajectory, whose digest might have told them something else.
        opinion: what a model said later.
        noted: what a model wrote down, without its texts: those are with the items.
        taught: every item the session has contributed to, with its kind.
    """

    trajectory: Trajectory | None = None
    feedback: Feedback | None = None
    votes: tuple[Verdict, ...] = ()
    opinion: Opinion | None = None
    noted: Noted | None = None
    taught: dict[str, ItemKind] = {}

    def merge(self, value: Trajectory | Feedback | Opinion) -> bool:
        """Take in what came; say whether the session itself did, whole and with all the events that are known of it."""
        if isinstance(value, Opinion):
            known = self.opinion
            # Of two on the same events any will do, if it is always the same one.
            if known is None or (value.events, value.to_json()) > (known.events, known.to_json()):
                self.opinion = value
            return False
        feedback = value if isinstance(value, Feedback) else value.feedback
        if feedback is not None:
            self.feedback = feedback.newest(self.feedback)
        fresh = False
        # With as many events it is the same session again: then whole, where a digest was stored.
        if isinstance(value, Trajectory) and (self.trajectory is None or value.events >= self.trajectory.events):
            self.trajectory, fresh = value, True
        if self.trajectory is not None and self.trajectory.feedback != self.feedback:
            self.trajectory = replace(self.trajectory, feedback=self.feedback)
        return fresh

    @property
    def said(self) -> tuple[Verdict, ...]:
        """All votes on the session as it is known now, the most trusted first."""
        if self.opinion is None or self.trajectory is None or self.opinion.events != self.trajectory.events:
            return self.votes
        return (*self.votes, self.opinion.verdict)

    def note(self, notes: Notes, verdict: Verdict) -> list[Candidate]:
        """What a model's notes contribute, unless the session has become another one or its verdict unsure."""
        if self.trajectory is None or notes.events != self.trajectory.events or not notable(verdict, notes.label):
            return []
        candidates = list(notes.candidates(self.trajectory))
        self.noted = Noted(notes.events, notes.label, {each.item_id: each.kind for each in candidates})
        return candidates

    def teach(self, candidates: Iterable[Candidate], verdict: Verdict) -> list[Candidate]:
        """The contributions of the verdict as it is now, and the withdrawal of all that an earlier one contributed beside them."""
        assert self.trajectory is not None, "nothing is taught by a session that has not come"
        now = {each.item_id: each for each in candidates}
        noted = self.noted
        holds = noted is not None and noted.events == self.trajectory.events and notable(verdict, noted.label)
        stays = now.keys() | (noted.items.keys() if noted is not None and holds else ())
        gone = [_withdrawal(id, kind, self.trajectory) for id, kind in self.taught.items() if id not in stays]
        for id, each in now.items():
            if len(self.taught) < MAX_TAUGHT:
                self.taught.setdefault(id, each.kind)
        return [*now.values(), *gone]

    def to_json(self, trajectory: bytes | None = None) -> bytes:
        """As it is stored; `trajectory` is its own, where that has been encoded already: most of the work."""
        if trajectory is None:
            return encode(self)
        # The newest correction is in the trajectory.
        rest = {name: getattr(self, name) for name in ("votes", "opinion", "noted", "taught")}
        return encode({"trajectory": msgspec.Raw(trajectory)} | {name: value for name, value in rest.items() if value})

    @classmethod
    def from_json(cls, value: bytes | str) -> SessionState:
        """Raises msgspec.DecodeError (a ValueError) for what is none."""
        state = _read(value)
        if state.trajectory is not None:
            state.feedback = state.trajectory.feedback
        return state


def notable(verdict: Verdict, label: str) -> bool:
    """Whether notes on a session that ended in `label` may be taught: only where that is sure."""
    return verdict.label == label and not FAILURE_BELOW <= verdict.probability <= SUCCESS_ABOVE


def _withdrawal(id: str, kind: ItemKind, trajectory: Trajectory) -> Candidate:
    """Takes back whatever the session contributed to the item up to this state of it."""
    return Candidate(
        **origin(trajectory),
        item_id=id,
        kind=kind,
        side="withdrawn",
        rank=(),
        title="",
        description="",
        content="",
        when="",
    )


_read = msgspec.json.Decoder(SessionState).decode
