"""Pair calls with results, also if ids are missing or repeated, and read how a call ended.

A unique id decides. Other calls of one turn are answered in order, or by the tool that a result names. A turn ends when
a person speaks, and when a call follows a result.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from fleetlore.wire.decode import read_json

__all__ = ["OpenCalls", "Verdict", "json_or_text", "text_of_content", "verdict_of"]

T = TypeVar("T")
# An id and a tool, None for any.
_Key = tuple[str | None, str | None]


class OpenCalls(Generic[T]):
    def __init__(self, leave: Callable[[T], object], limit: int = 2**62) -> None:
        self._leave, self._limit = leave, limit
        self._numbers = count()
        # By age: the call, its id and its tool. A plain dict finds its first entry slowly once others are removed.
        self._open = OrderedDict[int, tuple[T, str, str, int]]()
        self.size = 0
        self._by: dict[_Key, OrderedDict[int, None]] = {}
        # Calls of this turn alone can have a result without an id.
        self._turn: dict[_Key, OrderedDict[int, None]] = {}
        self._turn_start = 0
        self._is_answered = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        return (call for call, *_ in self._open.values())

    def __contains__(self, id: str) -> bool:
        return (id, None) in self._by

    def add(self, id: str, tool: str, call: T, size: int = 0) -> None:
        """Replaces an earlier turn's call of its id. `size`: bytes that the call keeps."""
        if self._is_answered:
            self.end_turn()
        for number in list(takewhile(self._turn_start.__gt__, self._by.get((id, None), ()))):
            self._leave(self._removed(number))
        number = next(self._numbers)
        self._open[number] = call, id, tool, size
        self.size += size
        for held, first in ((self._by, id), (self._turn, None)):
            for named in (None, tool):
                held.setdefault((first, named), OrderedDict())[number] = None
        if len(self._open) > self._limit:
            self._leave(self._removed(next(iter(self._open))))

    def pop(self, id: str, tool: str = "") -> T | None:
        # A result may have an id that its call lacks, or the tool's name as id.
        keys: list[_Key] = [(id, tool), (id, None)] if id else []
        keys += [("", tool or id), ("", None)]
        found = next((self._by[key] for key in keys if key in self._by), None)
        if found is None and not id:
            found = self._turn.get((None, tool)) or self._turn.get((None, None))
        if not found:
            return None
        self._is_answered = True
        return self._removed(next(iter(found)))

    def end_turn(self) -> None:
        self._is_answered = False
        for number in list(self._by.get(("", None), ())):
            self._leave(self._removed(number))
        self._turn = {}
        self._turn_start = next(self._numbers)

    def close(self) -> None:
        while self._open:
            self._leave(self._removed(next(iter(self._open))))

    def _removed(self, number: int) -> T:
        call, id, tool, size = self._open.pop(number)
        self.size -= size
        for held, first in ((self._by, id), (self._turn, None)):
            for named in (None, tool):
                if (numbers := held.get((first, named))) is not None:
                    numbers.pop(number, None)
                    if not numbers:
                        del held[first, named]
        return call


# Characters of a result that are searched for an error.
_BEGINNING = 2_000
# Colours of a terminal, and the byte order mark.
_DRESS = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]|\ufeff")
# "Error" and what follows it in a failure. A page, a figure or a log about errors goes on with other words.
_ERROR = (
    r"(?:Error|ERROR|error)(?:[:!](?!\s*(?i:none|null|nil|n/a|no(?: errors?)?|0|[\d.]+\s?%)\s*(?:\n|\Z))"
    r"|[^\S\n]*(?:\n|\Z)|[(,]| \[[A-Z_]+\]| \d+(?: \(\w+\))?(?::| at line )| code:? ?-?\d+(?::| -)"
    r"| (?:(?!handling|logging|tracking|reporting|monitoring|correcting|messaging)[a-z]+ing|while|when|during|occurred"
    r"|from server|response from|at line|in (?:line|file|tool|function|query|step))\b| in \S*[(`'\"])"
)
_FAILED = re.compile(
    r"\s*+(?:(?:\+ Exception Group )?Traceback \(most recent call last\)|<tool_use_error>"
    rf"|An error occurred(?=:| while| \()|{_ERROR}"
    r"|(?:Uncaught )?(?:[A-Za-z_][\w.]*\.)?(?:[A-Z]\w*(?:Error|Exception)|Exception)\b(?:[:(]|\s*\Z|\n\s+at )"
    r"|fatal: |Exception in thread \"|Unhandled exception[.:] |panic: |thread '[^'\n]{1,200}' (?:\(\d+\) )?panicked at "
    r"|npm (?:ERR!|error) |error(?:\[E\d+\]| TS\d+): |PHP (?:Fatal|Parse) error: "
    # Codex
    r"|apply_patch verification failed: |unsupported (?:custom tool )?call: |failed to parse function arguments: "
    r"|failed in sandbox: |[Cc]ommand (?:timed out after \d|failed(?: with exit code \d+)?: )"
    r"|Tool (?:execution )?(?:error|failed): "
    # SWE-agent
    r"|The command '[^\n]{0,2000}' was cancelled because it took more than |Your bash command contained syntax errors"
    # MCP's kits and pydantic
    r"|MCP error -\d+: |(?:In|Out)put validation error: |Unknown tool: |\d+ validation errors? for \S+\n"
    # Shells
    r"|\S*sh: (?:-c: )?(?:(?:line )?\d+: )?(?:[Ss]yntax error|unexpected EOF"
    r"|\S+: (?:(?:command )?not found|No such file or directory|Permission denied|Is a directory)\b)"
    r"|zsh:(?:\d+:)? (?:command not found|no such file or directory|permission denied|no matches found|parse error)\b"
    r"|'[^'\n]{1,200}' is not recognized as an internal or external command)"
)
# A program's complaint, as the whole result: 403 of 403 in logs of shells were failures. More lines may be finds.
_COMPLAINT = (
    r"[\w.@/+-]++: (?:[^\n]{0,500}: )?(?:No such file or directory|Permission denied|Is a directory|Not a directory)"
    r"(?: \([^()\n]{1,100}\))?\.?[^\S\n]*(?:\n|\Z)"
    r"|[\w./+-]++: (?:(?:invalid|illegal) option|unrecognized option|option requires an argument) [^\n]{1,200}(?:\n|\Z)"
    r"|(?:[\w.-]{1,100}: )?Try ['`][^\n]{1,200}(?:\n|\Z)"
)
_COMPLAINED = re.compile(rf"\s*+(?=[\w.@/+-]++: )(?:{_COMPLAINT}){{1,3}}\s*\Z")
# Frames of a command that failed: of Codex, mini-SWE-agent, Roo and AutoGen. The output below may quote another one.
_EXITED = re.compile(
    r"(?:(?:Command|Chunk ID|Wall time|Total output lines)\b[^\n]*\n+)*"
    r"(?:(?:Process exited with code|Exit code:?) -?0*[1-9]\d*[^\S\n]*(?:\n|\Z)"
    r"|(?:<exception>[^<]*</exception>\s*)?<returncode>-?0*[1-9]\d*</returncode>"
    r"|Command executed in terminal\b[^\n]* Exit code: -?0*[1-9]\d*\n"
    r"|exitcode: -?0*[1-9]\d* \(execution failed\))"
)
# The end of such a frame: of OpenHands, Copilot and Gemini CLI.
_FRAME_END = 400
_EXITED_AT_END = re.compile(
    r"\[(?:The command completed|Command finished) with exit code -?0*[1-9]\d*\.?\]"
    r"(?:\n\[(?!.{0,30} exit code)[^\n]*\])*\s*\Z"
    r"|<exited with exit code -?0*[1-9]\d*>\s*\Z|\nExit Code: -?0*[1-9]\d*\nSignal: [^\n]*(?:\n[^\n:]+: [^\n]*)*\s*\Z"
)
# The end of a stock sentence that an ordinary text could go on with.
_END = r"(?=[\"<.!:]|\s*\Z)"
# Codex's text for a result that it lacks. A tool may use it as the name of an error, such as gRPC's ABORTED.
_LACKED = "aborted"
# Texts in place of the result of a refused, cancelled or interrupted call, perhaps as the error of a JSON object.
_NEVER_MADE = re.compile(
    # Blanks are never given back: a megabyte of them would take a second.
    r"\s*+(?:\{\s*(?:\"status\"\s*:\s*\"denied\"\s*,\s*)?\"(?:error|message)\"\s*:\s*(?:\{\s*\"message\"\s*:\s*)?\")?"
    r"(?:<tool_use_error>\s*)?(?:Error: )?(?:<tool_use_error>\s*)?(?:"
    # Claude Code
    r"The user (?:doesn't want to (?:proceed with this tool use|take this action)\b|wants to clarify these questions)"
    r"|\[Request interrupted by user"
    rf"|Interrupted by user{_END}|Sibling tool call errored"
    r"|Cancelled: parallel tool call |Claude requested permissions? to "
    r"|Permission to (?:use (?:[A-Z]|mcp__)|(?:read|edit) (?:/|\w:\\)).{0,2000} has been (?:auto-)?denied"
    rf"(?:{_END}| because | in | \()"
    r"|Permission for this action (?:was|has been) denied"
    r"|This command (?:requires|uses shell operators that require) approval"
    r"|This Bash command contains multiple operations\. The following parts require approval"
    r"|(?:\S{1,200} in|Output redirection to) '.{0,2000}' was blocked\. For security, "
    r"|Streaming fallback - tool execution discarded|Tool permission (?:stream closed|request failed)"
    r"|\[Tool result missing due to internal error\]"
    r"|\S{1,200} operation blocked by hook|PreToolUse:\S+ hook (?:blocking )?error|Hook PreToolUse:\S+ denied"
    # Codex
    rf"|(?:(?:exec command |patch )?rejected by user|(?:command )?aborted by user(?: after [\d.]+s)?){_END}"
    r"|user (?:rejected|cancelled) MCP tool call"
    r"|Operation '[^'\n]{1,200}' is not supported by this environment"
    # Copilot, Zed and Strands, LiteLLM, Letta, Mastra, Microsoft's Agent Framework
    rf"|Permission denied and could not request permission from user|The user rejected this tool call{_END}"
    rf"|Permission to run tool denied by user|(?:MCP )?[Tt]ool cancell?ed by user{_END}"
    r"|\[System: Tool execution skipped/interrupted by user|request to call tool denied\. User reason: "
    r"|Tool call (?:invocation was rejected by user|was not approved by the user)"
    # Gemini CLI, Cline, Roo, opencode, goose, OpenHands, VS Code, Kimi
    r"|\[Operation Cancelled\]|User did not allow tool call|Tool call cancelled by user|The user denied this operation"
    r"|(?:Skipping (?:MCP )?tool .{1,2000}|(?:MCP )?[Tt]ool .{1,2000} was interrupted and not executed)"
    r" due to user rejecting a previous tool|Tool \S+ was not executed because a tool has already been used"
    r"|The user rejected permission to use this |The user has specified a rule which prevents you from using this "
    rf"|The user has declined to run this tool|Action (?:has been )?rejected by (?:the )?user{_END}"
    r"|The user (?:cancelled|chose to skip) the tool call|The tool call is rejected by the user"
    # LangChain, the Vercel AI SDK, the OpenAI Agents SDK, pydantic-ai, Google's ADK
    r"|User rejected the tool call|Tool execution (?:aborted|denied|was not approved|cancell?ed)"
    r"|Tool call \S+ with id \S+ was cancelled - another message|The tool call was denied"
    r"|(?:Tool not executed|Output tool not used) - a final result was already processed"
    r"|This tool call (?:is rejected\.|requires confirmation, please approve or reject))",
    re.DOTALL,
)
_MAY_SAY = re.compile(
    r'"(?:isError|is_error)"\s*:\s*true|"status"\s*:\s*"(?i:error|fail)|"error"\s*:\s*(?!null|false|"")'
    r'|"(?:exit_?(?i:code|status)|return_?code|code)"\s*:\s*-?[1-9]|"success"\s*:\s*false|"errors"\s*:\s*\[\s*\{'
    r'|"status(?:_?[Cc]ode)?"\s*:\s*[45]|"error_code"|"errorType"|"type"\s*:\s*"timeout"'
)
# Names of an exit code. `code` is one beside `stderr` alone.
_EXIT_CODES = ("exitCode", "exit_code", "returncode", "return_code", "exitStatus", "exit_status")
_HTTP_STATUS = ("status", "statusCode", "status_code")
# Fields of an answer that only says why.
_WHY = ("message", "reason", "detail", "details", "title", "msg")
_ENVELOPE = {*_WHY, *_HTTP_STATUS, "success", "code", "type", "instance", "timestamp", "path", "body", "headers"}
# MCP's content.
_TEXT_PARTS = re.compile(r'\s*+\[\s*+\{[^}]*?"type"\s*:\s*"(?:input_|output_)?text"')
# Python's notation of a message of LangChain or a result of MCP.
_PYTHON = re.compile(r"(?:\w+\()?(?:_?meta|content)=")
_PYTHON_ERRORS = ("isError=True", "is_error=True", "status='error'", 'status="error"')
_PYTHON_TEXT = re.compile(r"""\b(?:text|content)=(['"])(.*?)(?<!\\)\1""", re.DOTALL)
# Fields that wrap a result: Google's ADK, LangChain's own JSON, JSON-RPC, Bedrock.
_WITHIN = ("result", "response", "output", "kwargs", "json")
_MAX_WITHIN = 4


class Verdict(NamedTuple):
    """How a call ended. `error`: its text, or None if it worked. `made`: whether the tool was called."""

    error: str | None = None
    made: bool = True


def verdict_of(result: object, marked: bool | None = None) -> Verdict:
    """`marked`: its maker's mark of failure, or None. Only a field of the result overrules a mark of success."""
    if isinstance(result, str) and _TEXT_PARTS.match(result):
        result = json_or_text(result)
    if isinstance(result, list) or (isinstance(result, dict) and result.get("type") == "text"):
        result = text_of_content(result if isinstance(result, list) else [result]) or result
    if isinstance(result, str) and ("\x1b[" in result or "\ufeff" in result):
        result = _DRESS.sub("", result)
    error = _stated_error(result, 0, weak=marked is not False)
    if error is None and marked:
        error = _text_of(result)
    if error is None and marked is None and isinstance(result, str):
        if result.strip() == _LACKED or _NEVER_MADE.match(result):
            return Verdict(made=False)
        has_failed = _FAILED.match(result, 0, _BEGINNING) or _EXITED.match(result)
        if not has_failed and len(result) < _BEGINNING:
            has_failed = _COMPLAINED.match(result)
        # Most results have no frame: looking for a word takes a tenth of the search's time.
        if not has_failed and "xit" in (end := result[-_FRAME_END:]):
            has_failed = _EXITED_AT_END.search(end)
        error = result if has_failed else None
    return Verdict(error, made=error is None or not _NEVER_MADE.match(error))


def _stated_error(result: object, depth: int, *, weak: bool) -> str | None:
    if isinstance(result, str):
        if result[:_BEGINNING].lstrip()[:1] == "{" and _MAY_SAY.search(result):
            found = json_or_text(result)
            said = _stated_error(found, depth + 1, weak=weak) if isinstance(found, dict) else None
            return result if said is not None and said[:1] == "{" else said
        if not _PYTHON.match(result) or not any(each in result for each in _PYTHON_ERRORS):
            return None
        named = _PYTHON_TEXT.search(result, 0, _BEGINNING)
        return named[2] if named else result
    if isinstance(result, list):  # of Bedrock, and of the shell of OpenAI's responses
        parts = [each for each in result if isinstance(each, dict) and ("json" in each or "outcome" in each)]
        return next(filter(None, (_stated_error(each, depth + 1, weak=weak) for each in parts)), None)
    if not isinstance(result, dict) or depth > _MAX_WITHIN:
        return None
    is_marked = result.get("isError") is True or result.get("is_error") is True
    is_error = str(result.get("status")).lower() == "error"
    if is_marked or (is_error and (weak or "tool_call_id" in result)) or (weak and _has_error(result)):
        return _text_of(result)
    # A command may print JSON with an exit code.
    if (weak or not depth) and (printed := _failed_command(result)) is not None:
        return printed
    inner = (_stated_error(result[name], depth + 1, weak=weak) for name in _WITHIN if name in result)
    return next((each for each in inner if each is not None), None)


def _has_error(result: dict[str, Any]) -> bool:
    error = result.get("error")
    if error and not isinstance(error, float):  # a measured one
        return True
    if str(result.get("type")).endswith("_error") and "error_code" in result:
        return True
    if result.get("errorMessage") and "errorType" in result:  # AWS Lambda
        return True
    status = [result.get(name) for name in _HTTP_STATUS]
    failed = str(status[0]).lower() in ("failed", "failure")
    failed = failed or any(isinstance(each, int) and each >= 400 for each in status)
    stated = result.get("success") is False or (failed and result.keys() <= _ENVELOPE)
    if stated and any(isinstance(result.get(name), str) for name in (*_WHY, "body")):
        return True
    errors = result.get("errors")  # an answer of GraphQL that holds nothing else
    if not isinstance(errors, list) or result.get("data") or not result.keys() <= {"data", "errors", "extensions"}:
        return False
    return any(isinstance(each, dict) and "message" in each for each in errors)


def _failed_command(result: dict[str, Any]) -> str | None:
    about = [each for each in (result, result.get("metadata"), result.get("outcome")) if isinstance(each, dict)]
    codes = [each[name] for each in about for name in _EXIT_CODES if each.get(name) is not None]
    codes += [result.get("code")] if "stderr" in result else []
    has_failed = codes and str(codes[0]).strip("-0").isdecimal()
    if not has_failed and not any(each.get("type") == "timeout" for each in about[1:]):
        return None
    printed = [str(each) for each in map(result.get, ("stdout", "stderr", "output")) if each]
    return text_of_content(result.get("content")) or "\n".join(printed) or _text_of(result)


def _text_of(result: object) -> str:
    if isinstance(result, str):
        return result
    content = result.get("content") if isinstance(result, dict) else result
    text = text_of_content(content)
    return text or msgspec.json.encode(result, enc_hook=str).decode()


def json_or_text(value: object) -> Any:
    if isinstance(value, str):
        try:
            return read_json(value)
        except msgspec.DecodeError:
            pass
    return value


def text_of_content(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [each.get("text", each.get("logs")) if isinstance(each, dict) else each for each in content]
    return "\n".join(part for part in parts if isinstance(part, str))
