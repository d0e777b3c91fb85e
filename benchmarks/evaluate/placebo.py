"""Say as much as a memory says, made for something else: what a placebo gains as well is not worth of the content."""

from __future__ import annotations


class Placebo:
    """Keeps what was last said about each thing, and gives it where something is said about another."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def instead(self, about: str, text: str) -> str:
        """As many characters as `text`, which is about a task or a place: what was last said about another, cut or
        repeated. Empty as long as nothing was said about another.
        """
        other = next((said for of, said in reversed(self._last.items()) if of != about), "")
        if text:
            self._last.pop(about, None)
            self._last[about] = text
        return (other * (len(text) // len(other) + 1))[: len(text)] if other else ""
