"""Check whether a fleet or a session may be used: entered, not left, and in the process that entered it."""

from __future__ import annotations

import os

from fleetlore.errors import NotOpen

__all__ = ["Lifetime", "passes_over"]

_CLOSED = -1
_forks = 0  # of processes, from the first one that loaded this to this one


def _count_fork() -> None:
    global _forks
    _forks += 1


# Looked at several times a call: the id of the process would be a system call each time.
if hasattr(os, "register_at_fork"):  # where a process can fork
    os.register_at_fork(after_in_child=_count_fork)


class Lifetime:
    """Something that is entered and left once.

    A fork copies the memory and not the threads: the parent's would wait in the child for ever. `what`: its name in an
    error's text.
    """

    def __init__(self, what: str) -> None:
        self._open_in = _CLOSED  # forks of the process that it is open in
        self._what = what
        self._entered = False

    @property
    def is_new(self) -> bool:
        return not self._entered

    @property
    def is_open(self) -> bool:
        """Whether it was entered, in this process, and not left."""
        return self._open_in == _forks

    @property
    def is_forked(self) -> bool:
        """Whether it is open in a process that this one was forked from."""
        return self._open_in not in (_CLOSED, _forks)

    def enter(self) -> None:
        """Note that it is entered. Raises NotOpen where it was before."""
        if self._entered:
            raise NotOpen(self._why() if self.is_forked else f"{self._what} was entered before: make a new one")
        self._entered, self._open_in = True, _forks

    def leave(self) -> None:
        self._open_in = _CLOSED

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


def passes_over(error: BaseException | None) -> tuple[type[NotOpen], ...]:
    """Return the errors to suppress at the end of a block, so that an agent's own exception passes through."""
    return () if error is None else (NotOpen,)
