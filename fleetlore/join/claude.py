"""Join agents of the Claude Agent SDK.

async with fleet.session(goal) as session:
    async with ClaudeSDKClient(ClaudeAgentOptions(hooks=fleet_hooks(session))) as client: ...
"""

from collections.abc import Sequence
from typing import Any

from claude_agent_sdk import HookMatcher

from fleetlore.agent.session import Session
from fleetlore.join.hooks import HookCalls

__all__ = ["fleet_hooks"]

_EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")


def fleet_hooks(session: Session, tools: Sequence[str] = ()) -> dict[Any, list[HookMatcher]]:
    """Return hooks that record in the session, sub-agents' calls too.

    `tools`: names in `allowed_tools`, which hooks are not told.
    """
    hooks = HookCalls(session, tools)

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        if not session.is_open:  # the client outlives it
            return {}
        return hooks.take(given)

    return {event: [HookMatcher(hooks=[hook])] for event in _EVENTS}
