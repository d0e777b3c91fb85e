"""Keep sessions open under the names that somebody else gives them, as those of a connection."""

from __future__ import annotations

from collections.abc import Callable

from fleetlore.agent.session import Session

__all__ = ["NamedSessions"]

_MOST = 1024


class NamedSessions(dict[str, Session]):
    """Open sessions, by name. Where there are too many, the oldest is left."""

    def enter(self, name: str, make: Callable[[], Session]) -> Session:
        """The open session of this name; a new one, made and entered, where there is none."""
        if name not in self:
            self[name] = make().__enter__()
            if len(self) > _MOST:
                self.leave(next(iter(self)))
        return self[name]

    def leave(self, name: str) -> None:
        """End the session of this name, if there is one."""
        session = self.pop(name, None)
        if session is not None:
            session.__exit__(None, None, None)

    def leave_all(self) -> None:
        """End all of them."""
        for name in list(self):
            self.leave(name)
