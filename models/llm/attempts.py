"""Turn a model's notes on attempts at one task, started together, into contributions to memory items.

Notes are identified by their number: notes on more attempts, or on the same ones judged again, replace the earlier
ones. So in the end the items are those of the whole group, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Judgment
from models.judge.llm_opinion import Note
from models.judge.session_state import notable
from models.memory.candidate import Candidate, item_id
from models.memory.danger import is_dangerous_text

__all__ = ["chosen_attempts", "contributions"]

MOST_NOTES = 5
# Attempts of each side in one question.
_ATTEMPTS_OF_A_SIDE = 3


def chosen_attempts(group: Sequence[Judgment]) -> list[Judgment]:
    """The attempts that the model reads, drawn by a hash of the session; none until both sides are there."""
    ranked = sorted(group, key=lambda each: (stable_hash(each.trajectory.id), each.trajectory.id))
    sides = [
        [each for each in ranked if notable(each.verdict, label)][:_ATTEMPTS_OF_A_SIDE]
        for label in ("success", "failure")
    ]
    return [each for side in sides for each in side] if all(sides) else []


def contributions(group: Sequence[Judgment], notes: Sequence[Note], version: str) -> Iterator[Candidate]:
    """The notes' contributions: each attempt that the model read backs each note, and all others are withdrawn.

    Args:
        group: all its known attempts, each as it was judged last.
        version: of the distiller.
    """
    read = {each.trajectory.id for each in chosen_attempts(group)}
    # Of the whole group, since a note follows from all of it.
    events = sum(each.trajectory.events for each in group)
    revision = events, max(each.trajectory.revision[1] for each in group)
    for place in range(MOST_NOTES):
        for each in group:
            trajectory = each.trajectory
            backs = place < len(notes) and trajectory.id in read
            note = notes[place] if backs else Note(title="", description="", content="", when="")
            task = trajectory.task or trajectory.group
            yield Candidate(
                item_id=item_id(version, trajectory.tenant, "strategy", "attempts", trajectory.group, str(place)),
                tenant=trajectory.tenant,
                kind="strategy",
                side="success" if backs else "withdrawn",
                session=trajectory.id,
                agent=principal_of(trajectory.agent),
                seen=trajectory.ended,
                revision=revision,
                title=note.title,
                description=note.description,
                content=note.content,
                when=note.when,
                task=task,
                danger=is_dangerous_text(note.content),
                version=version,
            )
