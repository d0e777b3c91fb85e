"""Record the tool calls in the messages between an MCP client and its server, and add advice to answers.

Messages stay as they are, but for two: the instructions of the server get what the fleet knows of the task, and an
answer that says that a call failed gets what led others past such a failure.
"""

from __future__ import annotations

from typing import Any

import orjson

from fleetlore.agent.action import Action
from fleetlore.agent.session import Session

__all__ = ["McpCalls"]

_BEGINNINGS = ("initialize", "server/discover")
# Calls under way that are remembered; one that is never answered must not fill the memory.
_MAX_OPEN = 1024


class McpCalls:
    """The calls of one connection, recorded in one session. Of JSON-RPC, whatever its version; for any thread.

    Both methods take a message in JSON and return the one to pass on.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun: dict[object, Action | None] = {}  # by id of the request; None for a beginning

    def from_client(self, message: bytes) -> bytes:
        for each in _parsed(message) if self._session.is_open else ():
            self._take_request(each)
        return message

    def from_server(self, message: bytes) -> bytes:
        if not self._begun or not self._session.is_open or (b'"result"' not in message and b'"error"' not in message):
            return message
        answers = _parsed(message)
        if not any([self._take_answer(each) for each in answers]):
            return message
        changed = orjson.dumps(answers if message.lstrip()[:1] == b"[" else answers[0])
        return changed + message[len(message.rstrip()) :]  # over stdio the newline ends a message

    def close(self) -> None:
        """The connection ended: what became of the calls under way is not known."""
        while self._begun:
            _, action = self._begun.popitem()
            if action is not None:
                action.abandon()

    def _take_request(self, message: dict[str, Any]) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        if isinstance(id, list | dict):
            return  # no JSON-RPC; the server will say so
        if method == "tools/call" and isinstance(params, dict):
            self._begun[id] = self._session.begin(str(params.get("name")), params.get("arguments"), call_id=str(id))
        elif method in _BEGINNINGS:
            self._begun[id] = None
        elif method == "notifications/cancelled" and isinstance(params, dict):
            action = self._begun.pop(params.get("requestId"), None)
            if action is not None:
                action.abandon()
        if len(self._begun) > _MAX_OPEN:
            oldest = self._begun.pop(next(iter(self._begun)))
            if oldest is not None:
                oldest.abandon()

    def _take_answer(self, message: dict[str, Any]) -> bool:
        """Whether something was added to it."""
        id = message.get("id")
        if "method" in message or isinstance(id, list | dict) or id not in self._begun:
            return False
        action, result, error = self._begun.pop(id), message.get("result"), message.get("error")
        if action is None:
            return isinstance(result, dict) and self._introduce(result)
        if not isinstance(result, dict):
            said = error.get("message") if isinstance(error, dict) else error
            action.end(error_text=str(said))
            return False
        content = result.get("content")
        if content is None:  # the server asks for more first, or will answer later: as a call of its own
            action.abandon()
            return False
        parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        text = "\n".join(str(each["text"]) for each in parts if "text" in each)
        if not result.get("isError"):
            action.end(result.get("structuredContent") or text or parts)
            return False
        action.end(error_text=text)
        advice = self._session.advise().text
        if advice:
            result["content"] = [*parts, {"type": "text", "text": advice}]
        return bool(advice)

    def _introduce(self, result: dict[str, Any]) -> bool:
        brief = self._session.brief().text
        if brief:
            result["instructions"] = "\n\n".join(filter(None, (result.get("instructions"), brief)))
        return bool(brief)


def _parsed(message: bytes) -> list[dict[str, Any]]:
    """The messages of a line: one, or those of a batch; none where it is no JSON."""
    try:
        parsed = orjson.loads(message)
    except orjson.JSONDecodeError:
        return []
    return [each for each in (parsed if isinstance(parsed, list) else [parsed]) if isinstance(each, dict)]
