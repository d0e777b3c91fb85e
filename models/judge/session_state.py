"""Merge the records of one session into the state behind its judgment.

Its trajectory, corrections and opinions arrive in any order and more than once. Merging keeps the one of each that
counts, so the final judgment follows from the set of records. If a principal used an id again, the session that began
first counts. The state also remembers everything that the session ever taught: a later verdict may have to withdraw it,
also after a crash between writing the state and sending the withdrawals. A model's opinion comes on the topic
`trajectories` later than the session, like feedback.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from fleetlore.wire.lore import ItemKind
from fleetlore.wire.trajectory import Feedback, Trajectory, Verdict, encode
from models.memory.candidate import Candidate, origin

__all__ = ["Opinion", "SessionState"]

# Item ids remembered of a session; with its digest they fit a field of the store. Only a session judged again and
# again, each time otherwise, gets near this; what is beyond stays taught.
MAX_TAUGHT = 64


class Opinion(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="opinion"):
    """A model's verdict. `session`: key of the trajectory (`Trajectory.id`). `events`: events of the trajectory that
    the model saw; the verdict does not hold for a longer one."""

    session: str
    events: int
    verdict: Verdict

    def to_json(self) -> bytes:
        return encode(self)


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Single writer per session. `trajectory`: the session, or None while only a correction has arrived. Once stored it
    is cut to its digest. `feedback`: the newest correction. `votes`: the judges' verdicts on the whole trajectory.
    `opinion`: a model's later verdict. `taught`: every item the session has contributed to, with its kind."""

    trajectory: Trajectory | None = None
    feedback: Feedback | None = None
    votes: tuple[Verdict, ...] = ()
    opinion: Opinion | None = None
    taught: dict[str, ItemKind] = {}

    def merge(self, value: Trajectory | Feedback | Opinion) -> bool:
        """Merge a value in; say whether it was the whole session, with all events known of it."""
        if isinstance(value, Opinion):
            known = self.opinion
            # Two opinions on the same events are equally good, but always the same one must win.
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
        """All votes on the session as it is known now, the most trusted first."""
        if self.opinion is None or self.trajectory is None or self.opinion.events != self.trajectory.events:
            return self.votes
        return (*self.votes, self.opinion.verdict)

    def teach(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The contributions under the current verdict, and withdrawals of all other earlier ones."""
        assert self.trajectory is not None, "nothing is taught by a session that has not come"
        now = {each.item_id: each for each in candidates}
        gone = [_withdrawal(id, kind, self.trajectory) for id, kind in self.taught.items() if id not in now]
        for id, each in now.items():
            if len(self.taught) < MAX_TAUGHT:
                self.taught.setdefault(id, each.kind)
        return [*now.values(), *gone]

    def to_json(self, trajectory: bytes | None = None) -> bytes:
        """Encode it for the store. Pass its trajectory if that is already encoded, which saves most of the work."""
        if trajectory is None:
            return encode(self)
        # The newest correction is in the trajectory.
        rest = {name: getattr(self, name) for name in ("votes", "opinion", "taught")}
        return encode({"trajectory": msgspec.Raw(trajectory)} | {name: value for name, value in rest.items() if value})

    @classmethod
    def from_json(cls, value: bytes | str) -> SessionState:
        """Raises msgspec.DecodeError (a ValueError) if it is no state."""
        state = _read(value)
        if state.trajectory is not None:
            state.feedback = state.trajectory.feedback
        return state


def _replaces(new: Trajectory, known: Trajectory) -> bool:
    if new.claim != known.claim:
        return new.claim > known.claim
    # The same number of events: the session again, whole where only a digest was stored.
    return (new.events, not new.is_open) >= (known.events, not known.is_open)


def _withdrawal(id: str, kind: ItemKind, trajectory: Trajectory) -> Candidate:
    return Candidate(**origin(trajectory), item_id=id, kind=kind, side="withdrawn")


_read = msgspec.json.Decoder(SessionState).decode
