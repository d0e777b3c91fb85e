"""Keep sessions open under the names that somebody else gives them, as those of a connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fleetlore.agent.session import Session

__all__ = ["NamedSessions"]

_MOST = 1024
# After so long without a word a session is left; nobody says when it is over.
_SILENT_SECONDS = 600.0


class NamedSessions(dict[str, Session]):
    """Open sessions, by name, the longest silent first. It is left when it was silent long, or there are too many.

    Args:
        before_leaving: called with each session that is to be left.

    Attributes:
        busy: calls under way by session, as whoever keeps them counts: to wait for one is no silence.
    """

    def __init__(self, before_leaving: Callable[[Session], None] = lambda session: None) -> None:
        super().__init__()
        self._before_leaving = before_leaving
        self.busy = Counter[Session]()
        self._used: dict[str, float] = {}

    def enter(self, name: str, make: Callable[[], Session]) -> Session:
        """The open session of this name; a new one, made and entered, where there is none."""
        if name not in self:
            self[name] = make().__enter__()
            if len(self) > _MOST:
                self.leave(next(iter(self)))
        self.heard(name)
        return self[name]

    def heard(self, name: str) -> None:
        """Note that something was heard of a session; those of which nothing was for long are left."""
        self[name] = session = self.pop(name)
        self._used[name] = now = session.fleet.clock.monotonic()
        self.leave_silent(now)

    def leave_silent(self, now: float) -> None:
        """End those of which nothing was heard for long."""
        for name in list(self):
            if now - self._used[name] < _SILENT_SECONDS:
                break
            if not self.busy[self[name]]:
                self.leave(name)

    def rename(self, name: str, new: str) -> None:
        """Give a session another name."""
        self[new], self._used[new] = self.pop(name), self._used.pop(name)

    def leave(self, name: str) -> None:
        """End the session of this name, if there is one."""
        session = self.pop(name, None)
        self._used.pop(name, None)
        if session is not None:
            self._before_leaving(session)
            session.__exit__(None, None, None)

    def leave_all(self) -> None:
        """End all of them."""
        for name in list(self):
            self.leave(name)
