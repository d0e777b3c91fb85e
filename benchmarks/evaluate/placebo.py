"""Give an agent the notes of another task. A gain of this placebo is not a gain of the content."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evaluate.recall import Note


class Placebo:
    def __init__(self) -> None:
        self._last: dict[str, Sequence[Note]] = {}

    def instead(self, about: str, notes: Sequence[Note]) -> list[Note]:
        """Return as many notes of another subject, each about the same proposal, or none until there are some."""
        other: Sequence[Note] = next((said for of, said in reversed(self._last.items()) if of != about), ())
        if notes:
            self._last.pop(about, None)
            self._last[about] = notes
        return [other[place % len(other)]._replace(about=each.about) for place, each in enumerate(notes) if other]
