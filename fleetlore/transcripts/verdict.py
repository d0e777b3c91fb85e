"""Decide whether a call worked, failed or was never made, from its result and from what its maker says of it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from fleetlore.wire.decode import read_json

__all__ = ["Verdict", "json_or_text", "text_of_content", "verdict_of"]

# An error is known by how it begins: this many characters of a result are looked at.
_BEGINNING = 2_000
_FAILED = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|An error occurred while running the tool\b|E(?:rror|RROR)\b(?![./])"
    r"|(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)\b[:(]"
    r"|\S*sh: (?:line \d+: )?\S+: (?:command not found|No such file or directory|Permission denied))"
)
# Beginnings of the texts that agents put in place of the result of a call that was refused, cancelled or interrupted.
_NEVER_MADE = re.compile(
    r"\s*(?:Error: )?(?:<tool_use_error>\s*)?(?:"
    # Claude Code
    r"The user doesn't want to |\[Request interrupted by user|Interrupted by user|Sibling tool call errored"
    r"|Cancelled: parallel tool call |Claude requested permissions? to |Permission to use \S.{0,2000} has been denied"
    r"|Permission for this action (?:was|has been) denied|This command requires approval"
    r"|\S+ operation blocked by hook|PreToolUse:\S+ hook (?:blocking )?error|Hook PreToolUse:\S+ denied"
    # Codex
    r"|(?:exec command |patch )?rejected by user|user rejected MCP tool call|(?:command )?aborted by user"
    # Gemini CLI, Cline, opencode, LangChain, the Vercel AI SDK, the OpenAI Agents SDK, pydantic-ai
    r"|\[Operation Cancelled\]|User did not allow tool call|User rejected the tool call|The user denied this operation"
    r"|The user rejected permission to use |Tool execution (?:aborted|denied|was not approved|cancell?ed)"
    r"|The tool call was denied)",
    re.DOTALL,
)
# JSON that may say in its fields that a call failed.
_MAY_SAY = re.compile(r'"(?:isError|is_error)"\s*:\s*true|"status"\s*:\s*"error"|"error"\s*:\s*(?!null|false|"")')
# How Python writes a message of LangChain or a result of MCP, and the text in it.
_PYTHON = re.compile(r"(?:\w+\()?(?:_?meta|content)=")
_PYTHON_ERRORS = ("isError=True", "is_error=True", "status='error'", 'status="error"')
_PYTHON_TEXT = re.compile(r"""\b(?:text|content)=(['"])(.*?)(?<!\\)\1""", re.DOTALL)
# Fields under which a result lies as its tool gave it: Google's ADK, LangChain's own JSON, JSON-RPC.
_WITHIN = ("result", "response", "output", "kwargs")
_MAX_WITHIN = 4


class Verdict(NamedTuple):
    """How a call ended.

    Attributes:
        error: text of its error, or None if it worked.
        made: whether the tool was called at all. If not, the call says nothing about the tool.
    """

    error: str | None = None
    made: bool = True


def verdict_of(result: object, marked: bool | None = None) -> Verdict:
    """Decide how a call ended.

    `marked`: whether its maker marked it as failed, or None without a mark. Only a field of the result that marks it as
    failed overrules a mark of success.
    """
    error = _stated_error(result, 0, weak=marked is not False)
    if error is None and marked:
        error = _text_of(result)
    if error is None and marked is None and isinstance(result, str):
        if _NEVER_MADE.match(result):
            return Verdict(made=False)
        error = result if _FAILED.match(result, 0, _BEGINNING) else None
    return Verdict(error, made=error is None or not _NEVER_MADE.match(error))


def _stated_error(result: object, depth: int, *, weak: bool) -> str | None:
    """`weak`: look at fields that also occur in what a tool found (`error`, `status`)."""
    if isinstance(result, str):
        if result[:1] == "{" and _MAY_SAY.search(result):
            found = json_or_text(result)
            said = _stated_error(found, depth, weak=weak) if isinstance(found, dict) else None
            return result if said is not None and said[:1] == "{" else said
        if not _PYTHON.match(result) or not any(each in result for each in _PYTHON_ERRORS):
            return None
        named = _PYTHON_TEXT.search(result, 0, _BEGINNING)
        return named[2] if named else result
    if not isinstance(result, dict) or depth > _MAX_WITHIN:
        return None
    is_marked = result.get("isError") is True or result.get("is_error") is True
    is_error = result.get("status") == "error"
    if is_marked or (is_error and (weak or "tool_call_id" in result)) or (weak and result.get("error")):
        return _text_of(result)
    inner = (_stated_error(result[name], depth + 1, weak=weak) for name in _WITHIN if name in result)
    return next((each for each in inner if each is not None), None)


def _text_of(result: object) -> str:
    if isinstance(result, str):
        return result
    content = result.get("content") if isinstance(result, dict) else result
    text = text_of_content(content)
    return text or msgspec.json.encode(result, enc_hook=str).decode()


def json_or_text(value: object) -> Any:
    """Decode JSON in a text. Return the text itself if it is no JSON."""
    if isinstance(value, str):
        try:
            return read_json(value)
        except msgspec.DecodeError:
            pass
    return value


def text_of_content(content: object) -> str:
    """The text of a message's content. The content is a text, or a list of parts with texts among them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    return "\n".join(part for part in parts if isinstance(part, str))
