"""Define what a memory says to an agent: notes to read, and the chance that each proposal fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# An agent reads no more of its memory before a call: the same for all arms.
READ_CHARACTERS = 6_000


class Story(NamedTuple):
    """What a text about past calls says.

    Attributes:
        works, fails: lower-case names.
        failed: calls that failed; `solved`: the last call of a session that succeeded, or None.
        look_up: a call to make next, with placeholders in angle brackets, or "".
        chance: P(the call that the text is about fails), 0..1, or None.
    """

    works: frozenset[str] = frozenset()
    fails: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    solved: str | None = None
    look_up: str = ""
    chance: float | None = None


class Note(NamedTuple):
    """A text to read.

    Attributes:
        about: the index of the proposal that it was given for, None where it is about the session.
        story: what it says, if its writer hands that over in parts. The words of such a text are not read.
    """

    text: str
    about: int | None = None
    story: Story | None = None


class Recall(NamedTuple):
    """A memory's answer before a call: notes, the most relevant first, and P(fails) of each proposal where known."""

    notes: Sequence[Note] = ()
    risks: Sequence[float | None] = ()


def within_budget(notes: Sequence[Note]) -> list[Note]:
    """The first notes, up to `READ_CHARACTERS`. A repeated text costs nothing."""
    read: list[Note] = []
    seen: set[str] = set()
    left = READ_CHARACTERS
    for note in dict.fromkeys(notes):
        if note.text not in seen:
            left -= len(note.text)
            seen.add(note.text)
        if left < 0:
            break
        read.append(note)
    return read
