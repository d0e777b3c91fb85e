"""Join agents of the Claude Agent SDK: record their tools' calls and tell the model what the fleet knows.

    async with fleet.session(goal) as session:
        async with ClaudeSDKClient(ClaudeAgentOptions(hooks=fleet_hooks(session))) as client: ...

What a hook says stays in the conversation, so everything is said once. Of a call that the model has chosen it reads
only in place of the call, which is then denied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claude_agent_sdk import HookMatcher

from fleetlore.agent.action import Action
from fleetlore.agent.model_texts import after_call, prompt_prefix
from fleetlore.agent.session import Session

__all__ = ["fleet_hooks"]

_EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")


def fleet_hooks(session: Session, tools: Sequence[str] = ()) -> dict[Any, list[HookMatcher]]:
    """Hooks for `ClaudeAgentOptions(hooks=…)` that record in the session, sub-agents' calls among them.

    Args:
        tools: names of those that the agent may call, as in `allowed_tools`; the hooks are not told them.
    """
    hooks = _Hooks(session, tools)

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        if not session.is_open:  # the client outlives it
            return {}
        output = hooks.take(given["hook_event_name"], given)
        return {"hookSpecificOutput": {"hookEventName": given["hook_event_name"], **output}} if output else {}

    return {event: [HookMatcher(hooks=[hook])] for event in _EVENTS}


class _Hooks:
    """The calls of one client. Each method returns what its hook tells the process besides its name."""

    def __init__(self, session: Session, tools: Sequence[str]) -> None:
        self._session = session
        self._tools = tools
        self._begun: dict[str, Action] = {}
        self._held: set[str] = set()
        self._is_introduced = False

    def take(self, event: str, given: Any) -> dict[str, Any]:
        if event == "UserPromptSubmit":
            return _context(self._prompted(given["prompt"]))
        if event == "Stop":
            if said := given.get("last_assistant_message"):
                self._session.message("assistant", said)
            return {}
        if event == "PreToolUse":
            return self._chosen(given["tool_use_id"], given["tool_name"], given["tool_input"])
        return _context(self._ended(event, given))

    def _prompted(self, prompt: str) -> str:
        self._session.message("user", prompt)
        if self._is_introduced:
            return self._session.brief(self._tools).text
        self._is_introduced = True
        return prompt_prefix(self._session, self._tools)

    def _chosen(self, call: str, tool: str, arguments: Any) -> dict[str, Any]:
        held = self._session.hold(tool, arguments)
        if held is None:
            self._begun[call] = self._session.begin(tool, arguments, call_id=call)
            return {}
        self._held.add(call)
        return {"permissionDecision": "deny", "permissionDecisionReason": held.text}

    def _ended(self, event: str, given: Any) -> str:
        call = given["tool_use_id"]
        if call in self._held:
            return ""
        action = self._begun.pop(call, None) or self._session.begin(
            given["tool_name"], given["tool_input"], call_id=call
        )
        seconds = given["duration_ms"] / 1000 if "duration_ms" in given else None
        response = given.get("tool_response")
        said = response if isinstance(response, dict) else {}
        if given.get("is_interrupt") or said.get("interrupted"):
            action.abandon()
            return ""
        failed = event == "PostToolUseFailure" or bool(said.get("is_error") or said.get("isError"))
        if failed:
            error = given["error"] if event == "PostToolUseFailure" else str(said.get("content", said))
            action.end(error_text=error, duration_seconds=seconds)
        else:
            action.end(response, duration_seconds=seconds)
        return after_call(self._session, failed=failed)


def _context(text: str) -> dict[str, Any]:
    return {"additionalContext": text} if text else {}
