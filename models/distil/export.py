"""Make chats of judged sessions, from which a language model may learn, in the form that TRL reads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson

from fleetlore.advice.provenance import MARK
from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.redact.named_values import REDACTED
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.memory.identities import identities, replacing, texts_of

__all__ = ["calling", "chat", "is_usable", "session_row", "usable"]

_ASSISTANT = frozenset({"assistant", "model", "agent", "ai"})
_Row = dict[str, Any]


def usable(judgment: Judgment) -> bool:
    """Return whether a model may learn from a session: it is whole, judged, broke no rule and quotes no advice."""
    session = judgment.trajectory
    if session.guard or session.part or session.missing or session.ending == "continued":
        return False
    return judgment.verdict.label != "abstained" and not any(MARK in text for text in texts_of(session))


def session_row(judgment: Judgment) -> _Row:
    session = judgment.trajectory
    row = {"messages": chat(session, len(session.calls)), "label": judgment.verdict.label == "success"}
    replaced: _Row = replacing(identities(texts_of(session)))(row)
    return {"session": session.session, "agent": session.agent, "task": session.task, **replaced}


def is_usable(call: Step) -> bool:
    """Return whether a model may learn a call: it is whole, holds no masked secret, and followed no advice."""
    # The prompt does not hold the advice that a call followed.
    return not (call.is_cut or call.transient or call.advice or REDACTED in call.arguments)


def chat(session: Trajectory, calls: int) -> list[_Row]:
    """Return the chat up to the first `calls` calls, without the model's words before the next call."""
    messages: list[_Row] = []
    if session.goal and not any(step.role == "user" for step in session.steps[:2]):
        messages.append({"role": "user", "content": session.goal})
    for step in session.steps:
        if step.role != "tool":
            role = "assistant" if step.role in _ASSISTANT else "system" if step.role == "system" else "user"
            messages.append({"role": role, "content": step.result})
            continue
        words = ""
        if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
            words = messages.pop()["content"]
        if not calls:
            break
        calls -= 1
        messages += [calling(step, words), {"role": "tool", "content": _result(step), "name": step.tool}]
    return messages


def _result(step: Step) -> str:
    return (step.error_message or step.error_type or "") if step.failed else step.result


def calling(step: Step, words: str = "") -> _Row:
    """Return the message in which a model makes a call."""
    value = parsed(step.arguments)
    arguments: _Row = {"input": step.arguments} if step.arguments else {}
    if isinstance(value, dict):
        with suppress(orjson.JSONEncodeError):  # nested deeper than can be written
            orjson.dumps(value)
            arguments = value
    call = {"type": "function", "function": {"name": step.tool, "arguments": arguments}}
    return {"role": "assistant", "content": words, "tool_calls": [call]}
