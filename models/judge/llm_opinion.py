"""Carry what a model said of a session on the topic `trajectories`: later than the session, like feedback."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fleetlore.wire.trajectory import Trajectory, Verdict, encode
from models.memory.candidate import Candidate, item_id, origin
from models.memory.danger import is_dangerous_text

MAX_TITLE = 120
MAX_DESCRIPTION = 300
MAX_CONTENT = 600
MAX_WHEN = 200


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
    """One item as a model wrote it."""

    title: str
    description: str
    content: str
    when: str


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
        """The contributions to memory items. Two sessions meet in an item if their notes have the same title, and back
        each other if they say the same.
        """
        tools = [step.tool for step in trajectory.calls]
        tool = max(sorted(set(tools)), key=tools.count, default="")
        for note in self.notes:
            key = " ".join(note.title.casefold().split())
            yield Candidate(
                **origin(trajectory),
                item_id=item_id(self.version, trajectory.tenant, self.label, trajectory.task or tool, key),
                kind="strategy",
                side="success",
                title=note.title,
                description=note.description,
                content=note.content,
                when=note.when,
                tool=tool,
                task=trajectory.task,
                danger=is_dangerous_text(note.content),
                version=self.version,
            )
