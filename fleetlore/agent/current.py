"""Look up which session, and which call of it, the running code belongs to.

A framework runs tools in tasks and threads of its own and copies the context into them, so whatever it runs finds the
session of the agent that started it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetlore.agent.action import Action
    from fleetlore.agent.session import Session

__all__ = ["OPEN_ACTION", "OPEN_SESSION", "current_session"]

OPEN_SESSION: ContextVar[Session | None] = ContextVar("fleetlore_session", default=None)
OPEN_ACTION: ContextVar[Action | None] = ContextVar("fleetlore_action", default=None)


def current_session() -> Session | None:
    """The session that this code runs in: the innermost one that was entered and not left; None where there is none."""
    session = OPEN_SESSION.get()
    # A task may outlive the session that it was started in.
    return session if session is not None and session.is_open else None
