"""Answer the hooks of coding agents, in the words of Claude Code and Codex; Cursor's are translated.

A hook's text stays in the conversation, so nothing is repeated. Before a call the model reads only denials.
"""

from collections.abc import Collection, Mapping
from typing import Any, Required, TypedDict

import msgspec

from fleetlore.agent.action import Action
from fleetlore.agent.doors import after_call, prompt_prefix
from fleetlore.agent.session import Session
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.redact.values import fitting
from fleetlore.transcripts.calls import OpenCalls, json_or_text, text_of_content, verdict_of
from fleetlore.transcripts.codex import result_of_run

__all__ = ["CODING_AGENTS", "HookCalls", "begins", "in_claudes_words"]

# Coding agents, and their own tools, which hooks are not told.
CODING_AGENTS = {
    "claude-code": ("Bash", "Read", "Edit", "Write", "Glob", "Grep", "WebFetch", "WebSearch"),
    "codex": ("Bash", "apply_patch"),
    "cursor": ("Shell", "Read", "Write", "Grep", "Delete"),
}
_CURSORS = {
    "sessionStart": "SessionStart", "beforeSubmitPrompt": "UserPromptSubmit", "preToolUse": "PreToolUse",
    "postToolUse": "PostToolUse", "postToolUseFailure": "PostToolUseFailure", "afterAgentResponse": "Stop",
    "sessionEnd": "SessionEnd",
}  # fmt: skip
# Cursor's hooks whose answer the model reads.
_HEARD = ("SessionStart", "PostToolUse")
_MAX_BEGUN = 1024
_ENTRY_BYTES = 512
# Fields of a hook that a session keeps or compares. Those of a call are cut together.
_KEPT = ("tool_name", "tool_use_id", "tool_input"), ("prompt",), ("error",), ("last_assistant_message",)
_MAX_MILLISECONDS = 1e12


class _Hook(TypedDict, total=False):
    hook_event_name: Required[str]
    session_id: Required[str]
    source: str | None
    prompt: str
    tool_name: str
    tool_use_id: str | None
    tool_input: Any
    tool_response: Any
    error: Any
    duration_ms: Any
    is_interrupt: Any
    last_assistant_message: Any


class HookCalls:
    """`client`: one of `CODING_AGENTS`. `tools`: those that the model may call."""

    def __init__(self, session: Session, tools: Collection[str], client: str = "claude-code") -> None:
        self._session = session
        self._tools = tools
        self._client = client
        self._begun = OpenCalls[Action](Action.abandon, _MAX_BEGUN)
        self._held: dict[str, None] = {}
        self._is_introduced = False
        self._unsaid: list[str] = []

    def close(self) -> None:
        """Abandon the calls that a person refused, which no hook reports."""
        self._begun.close()

    @property
    def size(self) -> int:
        """Characters of the calls that it keeps, and bytes of their objects."""
        return self._begun.size + sum(_ENTRY_BYTES + len(call) for call in self._held)

    def take(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a hook. Raises KeyError: it lacks a field."""
        event = given["hook_event_name"]
        given = dict(given)
        for run in given.get("runs", ()):
            self._end_unreported(run, given)
        for names in _KEPT:
            given |= fitting({name: given[name] for name in names if name in given})
        if event == "PreToolUse":
            output = self._chosen(given)
        else:
            output = {"additionalContext": said} if (said := self._told(event, given)) else {}
        if self._client == "cursor":
            return self._for_cursor(given, output)
        return {"hookSpecificOutput": {"hookEventName": event, **output}} if output else {}

    def _told(self, event: str, given: Mapping[str, Any]) -> str:
        match event:
            case "SessionStart":  # earlier texts may be gone
                self._is_introduced = False
                return self._introduced() if begins(given) else ""
            case "SubagentStart":  # it does not share its parent's context
                return prompt_prefix(self._session, tuple(self._tools))
            case "UserPromptSubmit":
                self.close()
                self._session.message("user", given["prompt"])
                return self._session.brief(tuple(self._tools)).text if self._is_introduced else self._introduced()
            case "Stop":
                if said := text_of_content(given.get("last_assistant_message")):
                    self._session.message("assistant", said)
            case "PostToolUse" | "PostToolUseFailure":
                return self._ended(given, failed=event == "PostToolUseFailure")
        return ""

    def _introduced(self) -> str:
        self._is_introduced = True
        return prompt_prefix(self._session, tuple(self._tools))

    def _chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        call, tool, arguments = _call_of(given), given["tool_name"], given.get("tool_input")
        held = self._session.hold(tool, arguments)
        if held is None:
            self._held.pop(call, None)
            size = _ENTRY_BYTES + len(call) + 2 * len(arguments_text(arguments))
            self._begun.add(call, tool, self._session.begin(tool, arguments, call_id=call), size)
            return {}
        self._held[call] = None
        if len(self._held) > _MAX_BEGUN:
            del self._held[next(iter(self._held))]
        return {"permissionDecision": "deny", "permissionDecisionReason": held.text}

    def _ended(self, given: Mapping[str, Any], *, failed: bool) -> str:
        call = _call_of(given)
        if call in self._held:
            return ""
        action = self._begun.pop(call)
        if action is None:
            action = self._session.begin(given["tool_name"], given.get("tool_input"), call_id=call)
        # Another hook may have changed them.
        if given.get("tool_input", action.arguments) != action.arguments:
            action.change(given["tool_input"])
        took, response, why = given.get("duration_ms"), given.get("tool_response"), given.get("error") or ""
        seconds = took / 1000 if isinstance(took, int | float) and 0 <= took < _MAX_MILLISECONDS else None
        text = text_of_content(why) or arguments_text(why) if why else ""
        # Codex marks a failure in its rollout alone. The others report one by another hook.
        marked = None if self._client == "codex" else False
        for run in given.get("runs", ()):
            marked = result_of_run(run)[1] if run["id"] == call else marked
        error, made = verdict_of(text, True) if failed else verdict_of(response, marked)
        interrupted = given.get("is_interrupt") or (isinstance(response, dict) and response.get("interrupted"))
        if interrupted or not made:
            action.abandon()
            return ""
        action.end(response if error is None else None, error_text=error, duration_seconds=seconds)
        return after_call(self._session, failed=error is not None)

    def _end_unreported(self, run: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Codex has no hook for a call of MCP that failed."""
        result, has_failed = result_of_run(run)
        if has_failed and run["id"] in self._begun and run["id"] != given.get("tool_use_id"):
            action = self._begun.pop(run["id"])
            assert action is not None
            action.end(error_text=verdict_of(result, True).error)

    def _for_cursor(self, given: Mapping[str, Any], output: dict[str, Any]) -> dict[str, Any]:
        if "permissionDecision" in output:
            return {"permission": "deny", "agent_message": output["permissionDecisionReason"]}
        event = given["hook_event_name"]
        # Cursor blocks what these hooks do not allow.
        if event == "PreToolUse":
            return {"permission": "allow"}
        self._unsaid += output.values()
        if event == "UserPromptSubmit":
            return {"continue": True}
        if event not in _HEARD or not self._unsaid:
            return {}
        said, self._unsaid = "\n\n".join(self._unsaid), []
        return {"additional_context": said}


def _call_of(given: Mapping[str, Any]) -> str:
    """Some tools of Cursor have no id."""
    return given.get("tool_use_id") or f"{given['tool_name']} {arguments_text(given.get('tool_input'))}"


def begins(given: Mapping[str, Any]) -> bool:
    """Whether a `SessionStart` must advise the model: no first prompt follows (the context was compacted) or its answer
    is not read (Cursor).
    """
    return given.get("source") in ("compact", "cursor")


def in_claudes_words(client: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises KeyError, ValidationError."""
    if client != "cursor":
        return msgspec.convert(given, _Hook)
    translated = {
        **given,
        "hook_event_name": _CURSORS.get(given["hook_event_name"], given["hook_event_name"]),
        "session_id": given.get("conversation_id") or given["session_id"],
        "source": "cursor",
        "tool_response": json_or_text(given.get("tool_output")),
        "error": given.get("error_message") or given.get("failure_type"),
        "duration_ms": given.get("duration"),
        "is_interrupt": given.get("is_interrupt") or given.get("failure_type") == "permission_denied",
        "last_assistant_message": given.get("text"),
    }
    return msgspec.convert(translated, _Hook)
