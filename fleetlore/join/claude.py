"""Join agents of the Claude Agent SDK: record their tools' calls and tell the model what the fleet knows.

    async with fleet.session(goal) as session:
        async with ClaudeSDKClient(ClaudeAgentOptions(hooks=fleet_hooks(session))) as client: ...

A hook can speak between the model's choice of a call and the call itself. What it says stays in the conversation, so
everything is said once.
"""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import HookMatcher

from fleetlore.agent.action import Action
from fleetlore.agent.session import Session

__all__ = ["fleet_hooks"]

_EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")


def fleet_hooks(session: Session) -> dict[Any, list[HookMatcher]]:
    """Hooks for `ClaudeAgentOptions(hooks=…)` that record in the session, sub-agents' calls among them."""
    begun: dict[str, Action] = {}

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        event = given["hook_event_name"]
        if not session.is_open:  # the client outlives it
            return {}
        text = _taken(session, begun, event, given)
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}} if text else {}

    return {event: [HookMatcher(hooks=[hook])] for event in _EVENTS}


def _taken(session: Session, begun: dict[str, Action], event: str, given: Any) -> str:
    """Record what a hook is told of; what to tell the model then."""
    if event == "UserPromptSubmit":
        session.message("user", given["prompt"])
        return session.brief().text
    if event == "Stop":
        if said := given.get("last_assistant_message"):
            session.message("assistant", said)
        return ""
    call, tool, arguments = given["tool_use_id"], given["tool_name"], given["tool_input"]
    if event == "PreToolUse":
        text = session.advise(tool, arguments, call_id=call).text
        begun[call] = session.begin(tool, arguments, call_id=call)
        return text
    action = begun.pop(call, None) or session.begin(tool, arguments, call_id=call)
    seconds = given["duration_ms"] / 1000 if "duration_ms" in given else None
    response = given.get("tool_response")
    said = response if isinstance(response, dict) else {}
    if given.get("is_interrupt") or said.get("interrupted"):
        action.abandon()
        return ""
    if event == "PostToolUse" and not said.get("is_error") and not said.get("isError"):
        action.end(response, duration_seconds=seconds)
        return ""
    error = given["error"] if event == "PostToolUseFailure" else str(said.get("content", said))
    action.end(error_text=error, duration_seconds=seconds)
    return session.advise().text
