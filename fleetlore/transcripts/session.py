"""Turn the messages of a foreign log's session into events.

`docs/guide/import.md` lists the makers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from fleetlore.transcripts.calls import OpenCalls, json_or_text, text_of_content, verdict_of
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind

# Seconds between two events if the log has no times.
_TICK_SECONDS = 0.001
#: Errors that a log of another form raises.
MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)

MAX_GOAL = 2_000
# Most values of a line, document or sample: logs have one in 20 to 30 bytes. They take at most 0.8 GB.
MAX_VALUES = 8_000_000
# Until the year 5138 a time fits one unit.
_UNITS = (1.0, 1e3, 1e6, 1e9)
LATEST = 1e11
_MAY_BE_JSON = re.compile(r"\s*(?:[\[{\"\d-]|(?:true|false|null)\s*$)")
_NEVER_MADE, _NO_CALL, _OTHER_REASON = "call that was never made", "result without a call", "other parts"
SEEN = "entry that another transcript holds"
_MAX_REASONS = 32


@dataclass(slots=True)
class LoggedSession:
    """One logged session.

    Attributes:
        events, times: (kind, data) without start and end, and their Unix seconds, or empty.
        written: time of its file.
        unanswered: calls without a result.
        left_out: other parts that are no events, by reason.
    """

    session: str
    agent: str
    task: str
    goal: str
    outcome: ev.Outcome = "unknown"
    reward: float | None = None
    events: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    source: str = ""
    place: str = ""
    conversation: str = ""
    written: float = 0.0
    unanswered: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def all_events(self) -> list[tuple[Kind, dict[str, Any]]]:
        ended: dict[str, Any] = {ev.OUTCOME: self.outcome}
        if self.reward is not None:
            ended[ev.REWARD] = self.reward
        about = {ev.PLACE: self.place, ev.CONVERSATION: self.conversation}
        started = {ev.GOAL: self.goal, ev.TASK: self.task} | {name: value for name, value in about.items() if value}
        return [("session.started", started), *self.events, ("session.ended", ended)]

    def end(self, reward: float | None, succeeded: bool | None = None) -> None:
        """Note how it ended: by the log, or by a reward above 0.5."""
        self.reward = reward
        if succeeded is None and reward is not None:
            succeeded = reward > 0.5
        if succeeded is not None:
            self.outcome = "success" if succeeded else "failure"


class _Call(NamedTuple):
    tool: str
    arguments: object
    entry: object


class Conversation:
    """Collects one session.

    `parts`: texts that tell it from others of its `form`. `goal`: default: the first message of a person. `entry`: what
    is read. `unanswered`: the entries of calls without a result.
    """

    def __init__(
        self, form: str, *parts: str | bytes, agent: str = "", task: str = "", goal: str = "", conversation: str = ""
    ) -> None:
        digest, most = blake2b(digest_size=12), ev.MAX_ID_LENGTH
        for part in parts:
            digest.update(part.encode() if isinstance(part, str) else part)
            digest.update(b"\x1f")
        id = f"{form}-{digest.hexdigest()}"
        self.session = LoggedSession(id, agent or form, task, goal, source=form, conversation=conversation[:most])
        self._open = OpenCalls[_Call](self._leave)
        self.entry: object = None
        self.unanswered = set[object]()

    def say(self, role: str, text: str, time: float = 0.0) -> None:
        if text.strip() and role != "system":
            if role == "user":
                self.session.goal = self.session.goal or text[:MAX_GOAL]
                self._open.end_turn()
            self._add("message", {ev.ROLE: role, ev.CONTENT: text}, time)

    def call(self, id: str, tool: str, arguments: object) -> None:
        # Exceptions for each code or command take a twentieth of an import.
        if isinstance(arguments, str) and _MAY_BE_JSON.match(arguments):
            arguments = json_or_text(arguments)
        self._open.add(id, tool, _Call(tool, arguments, self.entry))

    def result(self, id: str, result: object, marked: bool | None = None, time: float = 0.0, tool: str = "") -> None:
        """Add a call's result, or count it as left out if the log lacks the call.

        `marked`: whether the log marks it as failed, or None. `tool`: named by the result.
        """
        called = self._open.pop(id, tool)
        verdict = verdict_of(result, marked)
        if called is None or not verdict.made:
            self.pass_over(_NO_CALL if called is None else _NEVER_MADE)
            return
        data: dict[str, Any] = {ev.TOOL: ev.fitting_name(called.tool), ev.ARGUMENTS: called.arguments}
        if verdict.error is not None:
            data |= {ev.ERROR_TYPE: ev.OTHER_ERROR, ev.ERROR_MESSAGE: verdict.error}
        elif result is not None:
            data[ev.RESULT] = result
        self._add("outcome", data, time)

    def pass_over(self, reason: str) -> None:
        counted = self.session.left_out
        counted[reason if reason in counted or len(counted) < _MAX_REASONS else _OTHER_REASON] += 1

    def forget(self) -> None:
        """Leave out what was read, except calls without a result: another session holds it."""
        self.session.left_out = Counter({SEEN: len(self.session.events)})
        self.session.events, self.session.times, self.session.unanswered = [], [], 0

    def done(self) -> LoggedSession:
        self._open.close()
        if not any(self.session.times):
            self.session.times = []
        return self.session

    def _leave(self, call: _Call) -> None:
        self.session.unanswered += 1
        self.unanswered.add(call.entry)

    def _add(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self.session.events.append((kind, data))
        self.session.times.append(time)


def seconds_of(time: object) -> float:
    """Return Unix seconds, or 0 without a time. The default offset is UTC."""
    if isinstance(time, int | float) and abs(time) < LATEST * _UNITS[-1]:
        return next((time / unit for unit in _UNITS if 0 <= time / unit < LATEST), 0.0)
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return 0.0
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return seconds if 0 <= seconds < LATEST else 0.0
    return 0.0


def timed_events(session: LoggedSession, tenant: str, end_time: float, now: float = LATEST) -> Iterator[Event]:
    """Yield a session's events, none later than `now`: workers refuse a time in the future.

    `end_time`: of a session whose log has no times.
    """
    events = session.all_events()
    times = [0.0, *session.times, 0.0] if len(session.times) == len(session.events) else [0.0] * len(events)
    known = [time for time in times if time]
    agent = ev.fitting_name(session.agent, session.source or "unnamed")
    last = known[0] if known else max(0.0, end_time - _TICK_SECONDS * len(events))
    for sequence, ((kind, data), time) in enumerate(zip(events, times, strict=True)):
        last = min(max(last, time) if time else last + _TICK_SECONDS, now)
        yield Event(kind, tenant, agent, session.session, sequence, last, data)


_ROLES = {
    "human": "user", "request": "user", "user-prompt": "user", "ai": "assistant", "AIMessageChunk": "assistant",
    "model": "assistant", "response": "assistant", "TextMessage": "assistant", "developer": "system",
    "system-prompt": "system",
}  # fmt: skip
_ANSWERS = ("tool", "function")
_CALLS = ("tool_use", "tool-call", "tool_call", "function_call", "functionCall", "toolUse", "executableCode")
_RESULTS = (
    "tool_result", "tool-result", "tool_call_response", "tool-return", "retry-prompt", "functionResponse",
    "function_response", "function_result", "tool_call_result", "toolResult", "codeExecutionResult",
)  # fmt: skip
_WRAPS = {*_CALLS, *_RESULTS, "toolInvocation"}
# Calls that the maker runs itself, such as `web_search_call`.
_CALL_ENDS, _RESULT_ENDS = ("_call", "_tool_use"), ("_call_output", "_tool_result")
_READ = {"tool_calls", "invalid_tool_calls", "tool_call_chunks", "function_call", "toolInvocations", "role", "content"}
_LIKE_CALLS = re.compile(r"tool|call|function|action|observation", re.IGNORECASE)
# Thoughts and files.
_SILENT = (
    "thinking", "redacted_thinking", "reasoning", "refusal", "image", "image_url", "input_image", "audio", "file",
    "input_audio", "document", "inlineData", "inline_data", "fileData", "thought", "step-start", "source-url",
    "reasoningContent", "cachePoint",
)  # fmt: skip
_ID = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId", "id")
_NAME = ("name", "tool_name", "toolName")
ARGUMENTS = (
    "arguments", "args", "input", "parameters", "action", "operation", "tool_kwargs", "code", "queries",
)  # fmt: skip
_RESULT = ("output", "content", "response", "result", "errorText")
# Results of calls that the maker runs.
_OUTPUT = ("output", "outputs", "results")
# Fields that hold the parts of a message, and the type of a part.
_PARTS = ("parts", "contents", "items", "blocks")
_KIND = ("type", "part_kind", "content_type", "block_type")
_ADDITIONAL = ("tool_calls", "function_call", "tool_call_id")
# The Vercel AI SDK's types of results.
_ERROR_OUTPUTS = {"error-text": True, "error-json": True, "text": None, "json": None, "content": None}
# Statuses of a result, and pydantic-ai's outcomes of a call.
_FAILED = ("error", "failed", "retried", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
_NOT_MADE = ("denied", "interrupted")
_ENDED, DENIED = ("completed", "failed"), "Tool execution denied"
# AutoGen's events, whose parts have no type.
_EVENTS = {"ToolCallRequestEvent": "tool_call", "ToolCallExecutionEvent": "tool_result"}
_MAX_KEYS = 8


def take_message(talk: Conversation, message: dict[str, Any], time: float) -> None:
    if isinstance(message.get("kwargs"), dict) and "lc" in message:  # LangChain's `dumpd`
        kind = str((message.get("id") or [""])[-1]).removesuffix("Chunk").removesuffix("Message").lower()
        message = {"type": kind, **message["kwargs"]}
    elif isinstance(message.get("data"), dict) and "type" in message:  # LangChain's `messages_to_dict`
        message = {**message["data"], "type": message["type"]}
    kind = str(message.get("type") or message.get("kind") or "")
    role = str(message.get("role") or ("user" if message.get("source") == "user" else kind))
    role = _ROLES.get(role, role)
    if "role" not in message and (_is_call(kind) or _is_result(kind)):  # an item of OpenAI's responses
        _take_part(talk, message, role, time)
        return
    content = message.get("content")
    if not message.keys().isdisjoint(_PARTS):
        lists = [message[name] for name in _PARTS if isinstance(message.get(name), list)]
        content = next((each for each in (*filter(None, lists), content, *lists) if each is not None), None)
    content = [content] if isinstance(content, dict) and role not in _ANSWERS else content
    for name, value in (message.get("additional_kwargs") or {}).items():  # of OpenAI's models, in LangChain
        if name in _ADDITIONAL and not message.get(name):
            message = {**message, name: value}
    if kind in _EVENTS and isinstance(content, list):
        content = [{**part, "type": _EVENTS[kind]} for part in content]
    elif role not in _ANSWERS and _LIKE_CALLS.search(role):  # such as smolagents' `tool-call`, in Python's notation
        _pass_over(talk, "message", message)
        return
    if role in _ANSWERS and not _holds(content, _is_result):
        _take_result(talk, {**message, "output": content}, time)
        return
    made = list(json_or_text(message.get("tool_calls")) or ())
    made += [message["function_call"]] if isinstance(message.get("function_call"), dict) else []
    # The Vercel AI SDK repeats them among the parts.
    invoked = () if message.get("parts") else message.get("toolInvocations") or ()
    others = (name for name in message.keys() - _READ if message[name] and isinstance(message[name], list | dict))
    unread = any(map(_LIKE_CALLS.search, others))
    if unread or (not isinstance(content, str | list) and not made and not invoked and kind not in _SILENT):
        _pass_over(talk, "message", message)
    if isinstance(content, str):
        talk.say(role, content, time)
    for part in content if isinstance(content, list) else ():
        _take_part(talk, part if isinstance(part, dict) else {"text": part}, role, time)
    # LangChain repeats the calls of Anthropic's models in the content.
    for call in () if _holds(content, _is_call) else made:
        if isinstance(call, dict):
            _take_call(talk, call)
        else:
            talk.pass_over("call that is no object")
    for call in message.get("invalid_tool_calls") or ():  # LangChain could not read the arguments
        _take_call(talk, call)
        talk.result(_text(call, _ID), call.get("error") or "the arguments are no JSON", True, time)
    for each in invoked:
        _take_part(talk, {"type": "dynamic-tool", **each}, role, time)


def _take_part(talk: Conversation, part: dict[str, Any], role: str, time: float) -> None:
    kind = _kind_of(part)
    part = part[kind] if isinstance(part.get(kind), dict) else part
    if _is_call(kind):
        _take_call(talk, part, kind)
        # A client answers the calls of `_CALLS`, unless they hold their results.
        if has_ended({"call_id": "", **part} if kind in _CALLS else part):
            marked = mark_of(part)
            found = part.get("error") or _first(part, _OUTPUT) or (part["status"] if marked else None)
            talk.result(_text(part, _ID), found, marked, time)
    elif _is_result(kind):
        _take_result(talk, part, time)
    elif kind.startswith("tool-") or kind in ("dynamic-tool", "toolInvocation"):  # the Vercel AI SDK
        part, state = {"toolName": kind.removeprefix("tool-"), **part}, str(part.get("state"))
        _take_call(talk, part)
        if state.startswith(("output-", "result")):
            _take_result(talk, {**part, "outcome": state.removeprefix("output-")}, time)
    elif isinstance(said := part.get("text", part.get("content")), str) and kind not in _SILENT:
        talk.say(_ROLES.get(kind, role), said, time)
    elif kind not in _SILENT and not any(name in part for name in _SILENT):
        _pass_over(talk, "part", part)


def _kind_of(part: dict[str, Any]) -> str:
    wrapped = (name for name in sorted(part.keys() & _WRAPS) if isinstance(part[name], dict))
    return next(wrapped, "") or str(_first(part, _KIND) or "")


def _is_call(kind: str) -> bool:
    return kind in _CALLS or kind.endswith(_CALL_ENDS)


def _is_result(kind: str) -> bool:
    return kind in _RESULTS or kind.endswith(_RESULT_ENDS)


def _take_call(talk: Conversation, call: dict[str, Any], kind: str = "") -> None:
    made = next((call[name] for name in ("function", "custom") if isinstance(call.get(name), dict)), call)
    talk.call(_text(call, _ID), _text(made, _NAME) or kind, _first(made, ARGUMENTS))


def _take_result(talk: Conversation, part: dict[str, Any], time: float) -> None:
    if isinstance(origin := part.get("origin"), dict):  # the call, in Haystack
        part = {**origin, **part}
    found, marked = _first(part, _RESULT), mark_of(part)
    if isinstance(found, dict) and found.get("type") in _ERROR_OUTPUTS:
        marked, found = marked or _ERROR_OUTPUTS[found["type"]], found.get("value")
    elif part.get("outcome") in _NOT_MADE or (isinstance(found, dict) and found.get("type") == "execution-denied"):
        marked, found = None, DENIED
    if isinstance(found, list):
        found = text_of_content(found) or found
    found = found or part.get("error") or part.get("exception")
    talk.result(_text(part, _ID), found, marked, time, _text(part, _NAME))


def mark_of(result: dict[str, Any]) -> bool | None:
    """Return whether its maker marks a result as failed, or None without a mark."""
    # LangChain marks every result without a known failure as a success.
    failed = result.get("status") in _FAILED or result.get("outcome") in _FAILED
    if failed or result.get("error") or result.get("exception") or result.get("part_kind") == "retry-prompt":
        return True
    marked = result.get("is_error", result.get("isError"))
    return marked if isinstance(marked, bool) else None


def has_ended(call: dict[str, Any]) -> bool:
    """Return whether its maker ran a call to its end: the client answers others by their `call_id`."""
    is_over = "call_id" not in call and call.get("status") in _ENDED
    return is_over or call.get("error") is not None or _first(call, _OUTPUT) is not None


def _holds(content: object, these: Callable[[str], bool]) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and these(_kind_of(part)) for part in content)


def _pass_over(talk: Conversation, what: str, found: dict[str, Any]) -> None:
    keys = ", ".join(ev.fitting_name(str(key)[:40]) for key in sorted(found, key=str)[:_MAX_KEYS])
    kind = found.get("type") or found.get("kind") or found.get("role")
    named = f" of type {ev.fitting_name(str(kind)[:40])}" if kind else ""
    talk.pass_over(f"{what}{named} with the keys {keys}")


def _first(holder: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((holder[name] for name in names if holder.get(name) is not None), None)


def _text(holder: dict[str, Any], names: tuple[str, ...]) -> str:
    return str(_first(holder, names) or "")
