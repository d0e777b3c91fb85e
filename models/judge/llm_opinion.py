"""Carry what a model said of a session on the topic `trajectories`: later than the session, like feedback."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fleetlore.wire.trajectory import Trajectory, Verdict, encode
from models.memory.candidate import Candidate, item_id, origin
from models.memory.quality import ERROR

# Characters of a part of a call that a note quotes.
MAX_PART = 60
_MAX_ERROR = 90


class Opinion(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="opinion"):
    """A model's verdict.

    Attributes:
        session: id of the trajectory.
        events: events of the trajectory that the model saw; the verdict does not hold for a longer one.
    """

    session: str
    events: int
    verdict: Verdict

    def to_json(self) -> bytes:
        return encode(self)


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A correction of a call that failed, as the recordings show it.

    Attributes:
        by, goal: of the session that shows what came, as in `Candidate`: where the one that failed does not show
            it itself, its agent has not produced it, and is no evidence. Empty where it does.
        tool, error, pattern: of the call: `error` as it is shown.
        was, now, named, danger: as in `fleetlore.wire.lore.MemoryItem`. None is `plain`: a new name may have stood in a
            result alone, and no call that worked bears it out.
    """

    by: str = ""
    goal: int = 0
    tool: str
    error: str
    pattern: str
    was: tuple[str, ...]
    now: tuple[str, ...]
    named: bool = False
    danger: bool = False


class Notes(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="notes"):
    """What a model learned from a session with a sure verdict.

    Attributes:
        session, events: as in `Opinion`.
        label: of the verdict; under another one the notes do not hold.
        version: of the distiller.
    """

    session: str
    events: int
    label: str
    version: str
    notes: tuple[Note, ...] = ()

    def to_json(self) -> bytes:
        return encode(self)

    def candidates(self, trajectory: Trajectory) -> Iterator[Candidate]:
        """The contributions to memory items: sessions with the same correction meet in one."""
        for note in self.notes:
            produced = origin(trajectory)
            if note.by:
                produced["agent"], produced["goal"] = note.by, note.goal
            change = f"`{note.was[0]}` → `{note.now[0]}`"
            yield Candidate(
                **produced,
                item_id=item_id(self.version, trajectory.tenant, "recovery", note.tool, note.pattern, change),
                kind="recovery",
                side="success",
                title=f"{note.tool}: {note.error[:_MAX_ERROR]} — {change}",
                description="A model found this by reading the session.",
                content=f"{ERROR}{note.error}\nChange: {change}",
                when=f"{note.tool} fails with: {note.error}",
                tool=note.tool,
                pattern=note.pattern,
                remedy={"tool": note.tool},
                was=note.was,
                now=note.now,
                named=note.named,
                danger=note.danger,
                version=self.version,
            )
