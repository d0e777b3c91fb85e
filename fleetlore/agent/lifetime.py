"""Check whether a fleet or a session may be used."""

import os

from fleetlore.errors import NotOpen

__all__ = ["Lifetime", "passes_over"]

_CLOSED = -1
_forks = 0  # of processes, up to this one


def _count_fork() -> None:
    global _forks
    _forks += 1


# A system call for the process id several times a call is too slow.
if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=_count_fork)


class Lifetime:
    def __init__(self, what: str) -> None:
        self._open_in = _CLOSED  # `_forks` when it was entered
        self._what = what
        self._entered = False

    @property
    def is_new(self) -> bool:
        return not self._entered

    @property
    def is_open(self) -> bool:
        return self._open_in == _forks

    @property
    def is_forked(self) -> bool:
        """Whether a parent process opened it: a fork copies the memory and not the threads."""
        return self._open_in not in (_CLOSED, _forks)

    def enter(self) -> None:
        if self._entered:
            raise NotOpen(self._why() if self.is_forked else f"{self._what} was entered before: make a new one")
        self._entered, self._open_in = True, _forks

    def leave(self) -> None:
        self._open_in = _CLOSED

    def check(self) -> None:
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
    """Return errors to suppress at the end of a block, so that an agent's own exception passes."""
    return () if error is None else (NotOpen,)
