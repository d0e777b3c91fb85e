"""Check whether a fleet or a session may be used: entered, not left, and in the process that entered it."""

from __future__ import annotations

from os import getpid

from fleetlore.errors import NotOpen

__all__ = ["Lifetime"]


class Lifetime:
    """What is entered once and left once.

    A fork copies the memory and not the threads: what the parent has entered would wait in the child for ever.

    Args:
        what: its name in an error's text.

    Attributes:
        open_in: id of the process that it is open in; 0 before it is entered and after it is left.
    """

    def __init__(self, what: str) -> None:
        self.open_in = 0
        self._what = what
        self._entered = False

    @property
    def is_new(self) -> bool:
        return not self._entered

    @property
    def is_open(self) -> bool:
        """Whether it was entered, in this process, and not left."""
        return self.open_in == getpid()

    @property
    def is_forked(self) -> bool:
        """Whether it is open in a process that this one was forked from."""
        return self.open_in not in (0, getpid())

    def enter(self) -> None:
        """Note that it is entered. Raises NotOpen where it was before."""
        if self._entered:
            raise NotOpen(self._why() if self.is_forked else f"{self._what} was entered before: make a new one")
        self._entered, self.open_in = True, getpid()

    def leave(self) -> None:
        self.open_in = 0

    def check(self) -> None:
        """Raise NotOpen, and say why, where it is not open."""
        if not self.is_open:
            raise NotOpen(self._why())

    def _why(self) -> str:
        if self.is_new:
            return f"{self._what} was not entered: use it inside its `with` block"
        if self.is_forked:
            return f"{self._what} was entered before the process forked: open a fleet in each process, after the fork"
        return f"{self._what} has been left: use it inside its `with` block"

    def __str__(self) -> str:
        return "new" if self.is_new else "open" if self.is_open else "forked" if self.is_forked else "left"
