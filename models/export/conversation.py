"""Render a session as the chat that a language model was in: messages, tool calls and tool results."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.wire.trajectory import Step, Trajectory

_ASSISTANT = frozenset({"assistant", "model", "agent", "ai"})
# The parameter of a tool that is called with plain text.
_TEXT_PARAMETER = "input"


class Message(NamedTuple):
    """A message of a chat.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        call: that an assistant's message makes.
        answers: the call whose result a tool's message is.
    """

    role: str
    content: str
    call: Step | None = None
    answers: Step | None = None


class Conversation(NamedTuple):
    """A session as a chat.

    Attributes:
        before: of each call of the session, in order, how many messages stand before it.
    """

    messages: tuple[Message, ...]
    before: tuple[int, ...]

    def until(self, call: int) -> list[Message]:
        """What a model had read when it made the call of this number."""
        return list(self.messages[: self.before[call]])


def conversation_of(session: Trajectory, system: str = "") -> Conversation:
    """The chat of a session: its system text, its goal, then its steps in order."""
    messages = [Message("system", system)] if system else []
    before: list[int] = []
    if session.goal and not any(step.role == "user" for step in session.steps[:2]):
        messages.append(Message("user", session.goal))
    for step in session.steps:
        if step.role != "tool":
            messages.append(Message(_role(step.role), step.result))
            continue
        said = ""
        if messages and messages[-1].role == "assistant" and messages[-1].call is None:
            said = messages.pop().content
        before.append(len(messages))
        messages.append(Message("assistant", said, call=step))
        messages.append(Message("tool", result_of(step), answers=step))
    return Conversation(tuple(messages), tuple(before))


def calling(step: Step) -> Message:
    """The assistant's message that makes a call and says nothing else."""
    return Message("assistant", "", call=step)


def result_of(step: Step) -> str:
    """What a call gave, as the model read it: its result, or its error."""
    return (step.error_message or step.error_type or "") if step.failed else step.result


def arguments_of(step: Step) -> dict[str, Any]:
    """Arguments of a call by name; plain text is the argument `_TEXT_PARAMETER`."""
    value = parsed(step.arguments)
    if isinstance(value, dict):
        with suppress(orjson.JSONEncodeError):  # nested deeper than can be written, which is less than can be read
            orjson.dumps(value)
            return value
    return {_TEXT_PARAMETER: step.arguments} if step.arguments else {}


def _role(role: str) -> str:
    if role in _ASSISTANT:
        return "assistant"
    return "system" if role == "system" else "user"
