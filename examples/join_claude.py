"""Use the hooks of the Claude Agent SDK in a fleet, called as Claude Code calls them, without starting it.

    pip install 'fleetlore[claude]'  # from your index
    fleetlore up --data ./lore        # in another terminal
    python examples/join_claude.py ./lore

Run it twice: the second time the wrong call is denied once, with what got past it as the reason.
"""

import asyncio
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions

from fleetlore import Fleet
from fleetlore.join.claude import fleet_hooks

GOAL = "What is the port of the service?"
CALLS = (("1", "/etc/service.toml"), ("2", "/srv/app/service.toml"))


async def main() -> None:
    data = sys.argv[1] if len(sys.argv) > 1 else None
    async with Fleet("claude", data=data) as fleet, fleet.session(GOAL, task="config") as session:
        hooks: Any = ClaudeAgentOptions(hooks=fleet_hooks(session, tools=["Read"])).hooks

        async def send(event: str, **given: Any) -> bool:
            output = await hooks[event][0].hooks[0]({"hook_event_name": event, **given}, None, {"signal": None})
            said = output.get("hookSpecificOutput", {})
            denied = said.get("permissionDecision") == "deny"
            print(
                event,
                "denied:" if denied else "told:",
                said.get("permissionDecisionReason" if denied else "additionalContext", "nothing"),
            )
            return not denied

        await send("UserPromptSubmit", prompt=GOAL)
        for call, path in CALLS:
            made = {"tool_use_id": call, "tool_name": "Read", "tool_input": {"file_path": path}}
            if not await send("PreToolUse", **made):
                continue
            if path == "/srv/app/service.toml":
                await send("PostToolUse", **made, tool_response="port = 8080")
            else:
                await send("PostToolUseFailure", **made, error=f"File does not exist: {path}")
        session.succeed()
    print(f"{session.calls} calls, {session.errors} failed")


asyncio.run(main())
