"""Read what a client asks a model in the session that it is used in, and tell the model what the fleet knows."""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any

from fleetlore.agent.action import current_session
from fleetlore.join.conversations import Conversation, Conversations
from fleetlore.join.dialects import Body, Dialect

__all__ = ["SessionCalls"]

log = logging.getLogger(__name__)


class SessionCalls:
    """The conversations of a client, each in the session that it began in. For any thread; it never raises."""

    def __init__(self) -> None:
        self._conversations = Conversations(own=False)
        self._lock = Lock()

    def told(self, dialect: Dialect, body: Body) -> tuple[Body, Conversation | None]:
        """A copy of a request, with what its model is told; the request where no session is, or it cannot be read."""
        session = current_session()
        if session is None:
            return body, None
        copied = _copied(body)
        try:
            with self._lock:
                conversation = self._conversations.tell(
                    (session.id,), dialect, copied, lambda said: session, session.fleet.clock.monotonic()
                )
        except Exception as error:
            log.warning("a request in session %s passes unread: %r", session.id, error)
            return body, None
        return (body, None) if conversation is None else (copied, conversation)

    def heard(self, conversation: Conversation, answer: bytes = b"") -> None:
        """Note that an answer has come; its bytes, where it is of OpenAI's responses."""
        session = conversation.session
        try:
            with self._lock:
                self._conversations.heard((session.id,), conversation, answer, session.fleet.clock.monotonic())
        except Exception as error:
            log.warning("an answer in session %s passes unread: %r", session.id, error)


def _copied(value: Any) -> Any:
    """Lists and objects anew: the agent keeps its own messages as they are."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
