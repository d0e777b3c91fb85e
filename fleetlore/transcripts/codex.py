"""Read the rollouts of Codex: a model's calls and, since version 0.148, what Codex ran for them."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fleetlore.files import lines_of
from fleetlore.transcripts.calls import json_or_text, text_of_content
from fleetlore.transcripts.session import (
    DENIED,
    MALFORMED,
    MAX_GOAL,
    MAX_VALUES,
    Conversation,
    LoggedSession,
    seconds_of,
    take_message,
)
from fleetlore.wire.decode import read_json

__all__ = ["logged_run", "read_codex", "result_of_run"]

# The tools that ran commands, by version. Its hooks call all of them `Bash`.
_SHELLS = ("shell", "shell_command", "exec_command", "local_shell_call", "container.exec")
_RAN = ("CommandExecution", "McpToolCall", "DynamicToolCall", "FileChange")
_SAID = ("message", "assistant")
# A script that calls the other tools. Its own result does not say how they ended.
_SCRIPT = "exec"
_OF_SCRIPT = re.compile(r"\btools\.(\w+)\s*\(")
_SCRIPT_FAILED, _SCRIPT_ERROR = "Script failed", "Script error:\n"


def read_codex(path: Path, seen: set[object] | None = None) -> Iterator[LoggedSession | None]:
    """Read each prompt as a session.

    `seen`: sessions of earlier files, which are not read again: a fork of an older version begins with a copy.
    """
    seen = set() if seen is None else seen
    thread, prompt, number = "", "", 0
    entries: list[tuple[dict[str, Any], float]] = []
    for line in lines_of(path):
        try:
            logged = read_json(line, MAX_VALUES)
            entry = logged["payload"]
            entry = entry["item"] if entry.get("type") == "item_completed" else entry
            kind = str(entry.get("type"))
            if logged["type"] == "session_meta":
                # A copy of another conversation follows with its own head.
                thread = thread or str(entry["id"])
            elif kind in ("user_message", "UserMessage"):
                if entries:
                    yield _session_of(entries, seen, thread or path.stem, str(number), prompt)
                prompt, number, entries = text_of_content(entry.get("message") or entry["content"]), number + 1, []
            elif kind in _RAN or kind.endswith(("_call", "_call_output")) or (kind, entry.get("role")) == _SAID:
                entries.append((entry, seconds_of(logged["timestamp"])))
        except MALFORMED:
            if line.strip():
                yield None
    if entries:
        yield _session_of(entries, seen, thread or path.stem, str(number), prompt)


def _session_of(
    entries: list[tuple[dict[str, Any], float]], seen: set[object], thread: str, number: str, prompt: str
) -> LoggedSession:
    # A copy has other times, and the same first call with its result. A search of the web has no id of its own.
    first = [entry for entry, _ in entries if entry.get("call_id") or entry["type"] in _RAN][:2]
    parts = map(msgspec.json.encode, first) if first else (thread, number)
    talk = Conversation("codex", *parts, goal=prompt[:MAX_GOAL], conversation=thread)
    talk.say("user", prompt)
    # By call: those without a result so far, scripts among them, and those whose runs are logged.
    calls: dict[str, dict[str, Any]] = {}
    scripts, ran = set[str](), set[str]()
    for entry, time in entries:
        try:
            id = str(entry.get("call_id", ""))
            if entry["type"] in _RAN:
                ran |= {entry["id"], *scripts}
                scripts.clear()
                _take_run(talk, entry, time)
            elif entry["type"].endswith("_call") and id:
                calls[id] = entry
                (scripts.add if entry.get("name") == _SCRIPT else scripts.discard)(id)
            elif (call := calls.pop(id, None)) is None:
                take_message(talk, entry, time)
            elif id not in ran:
                scripts.discard(id)
                _take_call(talk, call, entry, time)
        except MALFORMED:
            talk.pass_over("entry that cannot be read")
    for id in calls.keys() - ran:
        talk.call(id, *_named(calls[id]))
    if talk.session.session in seen:
        talk.forget()
    seen.add(talk.session.session)
    return talk.done()


def _take_call(talk: Conversation, call: dict[str, Any], result: dict[str, Any], time: float) -> None:
    if call.get("name") != _SCRIPT:
        tool, arguments = _named(call)
        take_message(talk, {**call, "name": tool, "arguments": arguments}, time)
        take_message(talk, result, time)
    elif (text := text_of_content(result.get("output"))).startswith(_SCRIPT_FAILED):
        id = str(call["call_id"])
        talk.call(id, *_named(call))
        talk.result(id, text.partition(_SCRIPT_ERROR)[2] or text, True, time)
    else:
        talk.pass_over("script whose calls are not logged")


def _named(call: dict[str, Any]) -> tuple[str, Any]:
    name = str(call.get("name") or call["type"])
    given = next((call[each] for each in ("arguments", "action", "input") if each in call), None)
    if name == _SCRIPT and len(called := set(_OF_SCRIPT.findall(str(given)))) == 1:
        [name] = called
    if space := call.get("namespace"):
        name = f"{space}__{name}"
    if name not in _SHELLS:
        return name, given
    asked = json_or_text(given)
    return "Bash", {"command": _line(asked.get("command") or asked.get("cmd"))} if isinstance(asked, dict) else given


def _line(words: Any) -> Any:
    if not isinstance(words, list):
        return words
    words = list(map(str, words))
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)


def _take_run(talk: Conversation, run: dict[str, Any], time: float) -> None:
    id = str(run["id"])
    match run["type"]:
        case "CommandExecution":
            talk.call(id, "Bash", {"command": _line(run["command"])})
        case "FileChange":
            talk.call(id, "apply_patch", run["changes"])
        case "McpToolCall":
            talk.call(id, f"mcp__{run['server']}__{run['tool']}", run["arguments"])
        case _:
            talk.call(id, run["tool"], run["arguments"])
    talk.result(id, *result_of_run(run), time)


def result_of_run(run: dict[str, Any]) -> tuple[object, bool | None]:
    """Return the result of what Codex ran, and whether it failed, or None if it was never made."""
    found = run.get("error") or run.get("result") or text_of_content(run.get("content_items"))
    if run["type"] == "CommandExecution":
        found = run.get("aggregated_output") or f"Exit code {run.get('exit_code')}"
    elif run["type"] == "FileChange":
        found = run.get("stderr") or run.get("stdout")
    elif isinstance(found, dict):
        found = found.get("message", found)
    return (DENIED, None) if run.get("status") == "declined" else (found, run.get("status") == "failed")


def logged_run(line: bytes) -> dict[str, Any] | None:
    """Return what Codex ran, from a line of a rollout, or None."""
    with suppress(*MALFORMED):
        run: dict[str, Any] = read_json(line)["payload"]["item"]
        return run if run["type"] in _RAN and isinstance(run["id"], str) else None
    return None
