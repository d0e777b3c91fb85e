"""Write what the doors give a model to read besides the answers to its calls, at three moments.

Before its first choice: a prefix of its prompt, the same in every turn. Providers cache a prompt by its prefix; a
system message that changes is paid for again with all that follows it. What comes to be known later is said behind it:
in place of a call that is sure to fail (`Session.hold`), and at the end of an answer.
"""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakKeyDictionary

from fleetlore.agent.session import Session

__all__ = ["after_call", "joined", "prompt_prefix", "tool_note"]

# Every request for the model sends the descriptions of all tools.
_MAX_NOTE = 300

_PREFIXES: WeakKeyDictionary[Session, dict[frozenset[str], str]] = WeakKeyDictionary()
_NOTES: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()


def prompt_prefix(session: Session, tools: Collection[str] = ()) -> str:
    """For the model's system message: how to read advice, and the brief of these tools.

    The same text in every turn of the session, until its tools change.
    """
    known = _PREFIXES.setdefault(session, {})
    key = frozenset(tools)
    if key not in known:
        # A system message is made anew for each turn: with other tools the brief of the first ones is gone.
        known[key] = joined(session.introduction, session.brief(tuple(tools), unseen=False).text)
    return known[key]


def tool_note(session: Session, tool: str) -> str:
    """For the description of a tool: what its brief says that the session was not told yet. The same text each time."""
    known = _NOTES.setdefault(session, {})
    if tool not in known:
        known[tool] = session.brief((tool,), most=1, max_chars=_MAX_NOTE).text
    return known[tool]


def after_call(session: Session, *, failed: bool) -> str:
    """For the end of the answer to a call that was made: what led others past its failure, and what the session itself
    gives cause to warn of. Mostly empty.
    """
    return session.advise().text if session.is_open and (failed or session.cautions()) else ""


def joined(*texts: str | None) -> str:
    """Those of the texts that say something, as paragraphs."""
    return "\n\n".join(filter(None, texts))
