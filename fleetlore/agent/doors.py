"""Share code between the doors: the texts that a model reads besides its calls' answers, and sessions by name.

Before its first choice a model reads a prefix of its prompt, the same in every turn, because providers cache a prompt
by its prefix. Later advice stands in place of a call that is sure to fail, and at the end of an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any
from weakref import WeakKeyDictionary

from fleetlore.agent.session import Session
from fleetlore.shares import Share, Shares

__all__ = ["NamedSessions", "after_call", "joined", "prompt_prefix", "tool_note"]

# Every request for the model sends the descriptions of all tools.
_MAX_NOTE = 300
_MOST_SESSIONS = 1024
# Sets of tools, and tools, whose texts are kept for a session. A client may name others in each request.
_MOST_TEXTS = 256
# A session is left after this long without a request, because its end is not announced.
_SILENT_SECONDS = 600.0

_PREFIXES: WeakKeyDictionary[Session, dict[frozenset[str], str]] = WeakKeyDictionary()
_NOTES: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()


def prompt_prefix(session: Session, tools: Collection[str] = ()) -> str:
    """For the model's system message: how to read advice, and the brief of these tools.

    The same text in every turn of the session, until its tools change.
    """
    known = _PREFIXES.setdefault(session, {})
    key = frozenset(tools)
    if key not in known:
        _make_room(known)
        # A system message is made anew for each turn: with other tools the brief of the first ones is gone.
        known[key] = joined(session.introduction, session.brief(tuple(tools), unseen=False).text)
    return known[key]


def tool_note(session: Session, tool: str) -> str:
    """For the description of a tool: what its brief says that the session was not told yet. The same text each time."""
    known = _NOTES.setdefault(session, {})
    if tool not in known:
        _make_room(known)
        known[tool] = session.brief((tool,), most=1, max_chars=_MAX_NOTE).text
    return known[tool]


def _make_room(texts: dict[Any, str]) -> None:
    if len(texts) >= _MOST_TEXTS:
        del texts[next(iter(texts))]


def after_call(session: Session, *, failed: bool) -> str:
    """For the end of the answer to a call that was made: what led others past its failure, and what the session itself
    gives cause to warn of. Mostly empty.
    """
    return session.advise().text if session.is_open and (failed or session.cautions()) else ""


def joined(*texts: str | None) -> str:
    """Those of the texts that say something, as paragraphs."""
    return "\n\n".join(filter(None, texts))


class NamedSessions(dict[str, Session]):
    """Open sessions by name, the longest silent first.

    One is left after long silence, or if its caller holds too many.

    Attributes:
        before_leaving: called with it.
        busy: calls under way by session, during which it is not silent.
    """

    def __init__(self, before_leaving: Callable[[Session], None] = lambda session: None) -> None:
        super().__init__()
        self._before_leaving = before_leaving
        self.busy = Counter[Session]()
        self._used: dict[str, float] = {}
        self._shares = Shares[str, Share](_MOST_SESSIONS, "open_sessions")

    def enter(self, name: str, make: Callable[[], Session], caller: Share = ("", "")) -> Session:
        """Return the open session of this name. If it does not exist, make one for the caller and enter it."""
        if name not in self:
            self[name] = make().__enter__()
            if (gone := self._shares.put(caller, name, caller)) is not None:
                self.leave(gone[0])
        self.heard(name)
        return self[name]

    def heard(self, name: str) -> None:
        """Note that a session is in use, and leave those that are silent for too long."""
        self[name] = session = self.pop(name)
        self._shares.get(name)  # it counts as used
        self._used[name] = now = session.fleet.clock.monotonic()
        self.leave_silent(now)

    def leave_silent(self, now: float) -> None:
        """Leave the sessions that are silent for too long."""
        for name in list(self):
            if now - self._used[name] < _SILENT_SECONDS:
                break
            if not self.busy[self[name]]:
                self.leave(name)

    def rename(self, name: str, new: str) -> None:
        self[new], self._used[new] = self.pop(name), self._used.pop(name)
        if (caller := self._shares.pop(name)) is not None:
            self._shares.put(caller, new, caller)

    def leave(self, name: str) -> None:
        session = self.pop(name, None)
        self._used.pop(name, None)
        self._shares.pop(name)
        if session is not None:
            self._before_leaving(session)
            session.__exit__(None, None, None)

    def leave_all(self) -> None:
        for name in list(self):
            self.leave(name)
