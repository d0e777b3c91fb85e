"""What a model says of attempts at one task that were started together: at most five notes, in its own words.

The notes have places and no titles to be known by: what is said of more attempts, or of the same ones judged again, takes the
place of what was said before, so in the end the items are those of the whole group, whatever came first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import Judgment
from models.judge.llm_opinion import Note
from models.judge.session_state import notable
from models.memory.candidate import Candidate, item_id

MOST_NOTES = 5
# Recordings of each side in one question: a model reads them all at once.
MOST_TOLD = 3


def told(group: Sequence[Judgment]) -> list[Judgment]:
    """The attempts that the model reads, drawn by a hash of the session; none as long as there are not both sides."""
    ranked = sorted(group, key=lambda each: (stable_hash(each.trajectory.id), each.trajectory.id))
    sides = [[each for each in ranked if notable(each.verdict, label)][:MOST_TOLD] for label in ("success", "failure")]
    return [each for side in sides for each in side] if all(sides) else []


def contributions(group: Sequence[Judgment], notes: Sequence[Note], version: str) -> Iterator[Candidate]:
    """What the notes contribute to memory items: each attempt that was told backs each note, and all else is taken back.

    Args:
        group: all its attempts that are known, each as it was judged last.
        version: of the distiller.
    """
    read = {each.trajectory.id for each in told(group)}
    # Of the whole group, for a note follows from all of it.
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
                agent=trajectory.agent,
                seen=trajectory.ended,
                revision=revision,
                rank=(-events,),
                title=note.title,
                description=note.description,
                content=note.content,
                when=note.when,
                task=task,
                version=version,
            )
