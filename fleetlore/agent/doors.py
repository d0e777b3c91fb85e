"""Share code between the doors: texts for a model's context, and sessions by name.

The prefix of a prompt is the same in every turn, because providers cache it.
"""

from collections import Counter
from collections.abc import Callable, Collection
from weakref import WeakKeyDictionary

from fleetlore.agent.session import Session
from fleetlore.calls.context import keep_newest
from fleetlore.limits import Share, Shares

__all__ = ["NamedSessions", "after_call", "joined", "prompt_prefix", "tool_note"]

# Every request for the model sends it.
_MAX_NOTE = 300
_MOST_SESSIONS = 1024
_MOST_TEXTS = 256
_SILENT_SECONDS = 600.0

_PREFIXES: WeakKeyDictionary[Session, dict[frozenset[str], str]] = WeakKeyDictionary()
_NOTES: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()


def prompt_prefix(session: Session, tools: Collection[str] = ()) -> str:
    """For the system message: how to read advice, and the brief of these tools."""
    known = _PREFIXES.setdefault(session, {})
    key = frozenset(tools)
    if key not in known:
        # Each turn has a new system message, so the first tools' brief is gone.
        text = joined(session.introduction, session.brief(tuple(tools), unseen=False).text)
        keep_newest(known, key, text, _MOST_TEXTS)
    return known[key]


def tool_note(session: Session, tool: str) -> str:
    """For the description of a tool: the unseen part of its brief. It never changes."""
    known = _NOTES.setdefault(session, {})
    if tool not in known:
        keep_newest(known, tool, session.brief((tool,), most=1, max_chars=_MAX_NOTE).text, _MOST_TEXTS)
    return known[tool]


def after_call(session: Session, *, failed: bool) -> str:
    """For the end of a call's answer: ways past its failure, and the session's own warnings."""
    return session.advise().text if session.is_open and (failed or session.cautions()) else ""


def joined(*texts: str | None) -> str:
    return "\n\n".join(filter(None, texts))


class NamedSessions(dict[str, Session]):
    """Open sessions by name. One is left after long silence, or if its caller has too many.

    `before_leaving` is called with it. `busy`: calls under way by session, during which it is not silent.
    """

    def __init__(self, before_leaving: Callable[[Session], None] = lambda session: None) -> None:
        super().__init__()
        self._before_leaving = before_leaving
        self.busy = Counter[Session]()
        self._used: dict[str, float] = {}
        self._shares = Shares[str, Share](_MOST_SESSIONS, "open_sessions", left=lambda name, _: self.leave(name))
        self.resize = self._shares.resize

    def enter(self, name: str, make: Callable[[], Session], caller: Share = ("", "")) -> Session:
        if name not in self:
            self[name] = make().__enter__()
            self._shares.put(caller, name, caller)
        self.heard(name)
        return self[name]

    def heard(self, name: str) -> None:
        """Note that a session is in use, and leave the silent ones."""
        self[name] = session = self.pop(name)
        self._shares.get(name)
        self._used[name] = now = session.fleet.clock.monotonic()
        self.leave_silent(now)

    def leave_silent(self, now: float) -> None:
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
