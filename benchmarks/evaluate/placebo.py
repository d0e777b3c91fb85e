"""Give a text of equal length that was made for another task. A gain of this placebo is not a gain of the content."""

from __future__ import annotations


class Placebo:
    """Keeps the last text about each subject, and gives it for another subject."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def instead(self, about: str, text: str) -> str:
        """The last text about another subject, cut or repeated to the length of `text`; empty until there is one."""
        other = next((said for of, said in reversed(self._last.items()) if of != about), "")
        if text:
            self._last.pop(about, None)
            self._last[about] = text
        return (other * (len(text) // len(other) + 1))[: len(text)] if other else ""
