"""Read one message of a chat in the form of any known maker, and count the messages and parts that are of none.

| maker | a call | its result |
| --- | --- | --- |
| OpenAI chat | `tool_calls` or `function_call` of a message | a message of role `tool` or `function` |
| OpenAI responses | an item `function_call` | an item `function_call_output` |
| Anthropic | a part `tool_use` | a part `tool_result` |
| Gemini | a part `functionCall` | a part `functionResponse` |
| Bedrock | a part `toolUse` | a part `toolResult` |
| LangChain | `tool_calls` of a message of type `ai` | a message of type `tool` |
| Vercel AI SDK | a part `tool-call` | a part `tool-result`; or both in a part `tool-<name>` |
| pydantic-ai | a part of kind `tool-call` | a part of kind `tool-return` or `retry-prompt` |
| OpenTelemetry | a part `tool_call` | a part `tool_call_response` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetlore.transcripts.calls import text_of_content
from fleetlore.transcripts.session import Conversation
from fleetlore.wire import events as ev

__all__ = ["is_message", "take_message"]

_ROLES = {
    "human": "user", "request": "user", "user-prompt": "user", "ai": "assistant", "AIMessageChunk": "assistant",
    "model": "assistant", "response": "assistant", "developer": "system", "system-prompt": "system",
}  # fmt: skip
_ANSWERS = ("tool", "function")
_CALLS = ("tool_use", "tool-call", "tool_call", "function_call", "functionCall", "toolUse")
_RESULTS = (
    "tool_result", "tool-result", "tool_call_response", "tool-return", "retry-prompt", "functionResponse",
    "function_response", "toolResult",
)  # fmt: skip
# Suffixes of calls that the maker runs itself, such as `web_search_call`.
_CALL_ENDS, _RESULT_ENDS = ("_call", "_tool_use"), ("_call_output", "_tool_result")
# Fields of a message that are read, or repeat those.
_READ = ("tool_calls", "invalid_tool_calls", "tool_call_chunks", "function_call", "toolInvocations")
_LIKE_CALLS = re.compile(r"tool|call|function|action|observation", re.IGNORECASE)
# Parts without calls and words: thoughts and files.
_SILENT = (
    "thinking", "redacted_thinking", "reasoning", "refusal", "image", "image_url", "input_image", "audio", "file",
    "input_audio", "document", "inlineData", "inline_data", "fileData", "thought", "step-start", "source-url",
    "executableCode", "codeExecutionResult", "reasoningContent", "cachePoint",
)  # fmt: skip
_ID = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId", "id")
_NAME = ("name", "tool_name", "toolName")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "action")
_RESULT = ("output", "content", "response", "result", "errorText")
# The Vercel AI SDK's types of results.
_ERROR_OUTPUTS = {"error-text": True, "error-json": True, "text": None, "json": None, "content": None}
# pydantic-ai's outcomes of a call.
_FAILED, _NOT_MADE = ("failed", "retried"), ("denied", "interrupted")
_MAX_KEYS = 8


def is_message(found: Mapping[str, Any]) -> bool:
    """Whether an object is a message and no session."""
    return bool({"role", "type", "parts", "kind"} & found.keys()) and not {"messages", "traj"} & found.keys()


def take_message(talk: Conversation, message: dict[str, Any], time: float) -> None:
    if isinstance(message.get("kwargs"), dict) and "lc" in message:  # LangChain's `dumpd`
        kind = str((message.get("id") or [""])[-1]).removesuffix("Chunk").removesuffix("Message").lower()
        message = {"type": kind, **message["kwargs"]}
    elif isinstance(message.get("data"), dict) and "type" in message:  # LangChain's `messages_to_dict`
        message = {**message["data"], "type": message["type"]}
    kind = str(message.get("type") or message.get("kind") or "")
    role = str(message.get("role") or kind)
    role = _ROLES.get(role, role)
    if "role" not in message and (_is_call(kind) or _is_result(kind)):  # an item of OpenAI's responses
        _take_part(talk, message, role, time)
        return
    content = message.get("content", message.get("parts"))
    content = [content] if isinstance(content, dict) else content
    if role in _ANSWERS and not _holds_results(content):
        _take_result(talk, {**message, "output": content}, time)
        return
    made = list(message.get("tool_calls") or ())
    made += [message["function_call"]] if isinstance(message.get("function_call"), dict) else []
    invoked = message.get("toolInvocations") or ()  # the Vercel AI SDK
    unread = [
        name
        for name, value in message.items()
        if name not in _READ and value and isinstance(value, list | dict) and _LIKE_CALLS.search(name)
    ]
    if unread or (content is None and not made and not invoked and kind not in _SILENT):
        _pass_over(talk, "message", message)
    if isinstance(content, str):
        _say(talk, role, content, time)
    for part in content if isinstance(content, list) else ():
        _take_part(talk, part if isinstance(part, dict) else {"text": part}, role, time)
    # LangChain repeats the calls of Anthropic's models in the content.
    if not _holds_calls(content):
        for call in made:
            _take_call(talk, call, time)
    for call in message.get("invalid_tool_calls") or ():  # LangChain could not read the arguments
        _take_call(talk, call, time)
        talk.result(_text(call, _ID), call.get("error") or "the arguments are no JSON", True, time)
    for each in invoked:
        _take_part(talk, {"type": "dynamic-tool", **each}, role, time)


def _take_part(talk: Conversation, part: dict[str, Any], role: str, time: float) -> None:
    kind = str(part.get("type") or part.get("part_kind") or "")
    wrapped = next((name for name in (*_CALLS, *_RESULTS) if isinstance(part.get(name), dict)), "")
    if wrapped:
        kind, part = wrapped, part[wrapped]
    if _is_call(kind):
        _take_call(talk, part, time, kind)
        error, output = part.get("error"), part.get("output")
        if error is not None or output is not None:  # the maker ran the tool
            failed = error is not None
            talk.result(_text(part, _ID), error if failed else output, failed or None, time)
    elif _is_result(kind):
        _take_result(talk, part, time)
    elif kind.startswith("tool-") or kind == "dynamic-tool":  # the Vercel AI SDK
        id, tool = str(part.get("toolCallId") or ""), str(part.get("toolName") or kind.removeprefix("tool-"))
        talk.call(id, tool, _first(part, _ARGUMENTS), time)
        if str(part.get("state", "")).startswith(("output-", "result")):
            talk.result(id, _first(part, _RESULT), "errorText" in part or None, time, tool)
    elif isinstance(said := part.get("text", part.get("content")), str) and kind not in _SILENT:
        _say(talk, _ROLES.get(kind, role), said, time)
    elif kind not in _SILENT and not any(name in part for name in _SILENT):
        _pass_over(talk, "part", part)


def _is_call(kind: str) -> bool:
    return kind in _CALLS or kind.endswith(_CALL_ENDS)


def _is_result(kind: str) -> bool:
    return kind in _RESULTS or kind.endswith(_RESULT_ENDS)


def _take_call(talk: Conversation, call: dict[str, Any], time: float, kind: str = "") -> None:
    made = next((call[name] for name in ("function", "custom") if isinstance(call.get(name), dict)), call)
    talk.call(_text(call, _ID), _text(made, _NAME) or kind, _first(made, _ARGUMENTS), time)


def _take_result(talk: Conversation, part: dict[str, Any], time: float) -> None:
    found, marked = _first(part, _RESULT), part.get("is_error", part.get("isError"))
    if isinstance(found, dict) and found.get("type") in _ERROR_OUTPUTS:
        marked, found = _ERROR_OUTPUTS[found["type"]], found.get("value")
    elif part.get("outcome") in _NOT_MADE or (isinstance(found, dict) and found.get("type") == "execution-denied"):
        found = "Tool execution denied"
    if isinstance(found, list):
        found = text_of_content(found) or found
    # LangChain marks every result without a known failure as a success.
    if part.get("status") == "error" or part.get("outcome") in _FAILED or part.get("part_kind") == "retry-prompt":
        marked = True
    talk.result(_text(part, _ID), found, marked if isinstance(marked, bool) else None, time, _text(part, _NAME))


def _say(talk: Conversation, role: str, text: str, time: float) -> None:
    if role != "system":
        talk.say(role, text, time)


def _holds_calls(content: object) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and _is_call(str(part.get("type"))) for part in content
    )


def _holds_results(content: object) -> bool:
    """Whether parts are results with own ids, as in the Vercel AI SDK."""
    return isinstance(content, list) and any(
        isinstance(part, dict) and (_is_result(str(part.get("type"))) or any(name in part for name in _RESULTS))
        for part in content
    )


def _pass_over(talk: Conversation, what: str, found: dict[str, Any]) -> None:
    keys = ", ".join(ev.fitting_name(str(key)[:40]) for key in sorted(found, key=str)[:_MAX_KEYS])
    kind = found.get("type") or found.get("kind") or found.get("role")
    named = f" of type {ev.fitting_name(str(kind)[:40])}" if kind else ""
    talk.pass_over(f"{what}{named} with the keys {keys}")


def _first(holder: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((holder[name] for name in names if holder.get(name) is not None), None)


def _text(holder: dict[str, Any], names: tuple[str, ...]) -> str:
    return str(_first(holder, names) or "")
