"""Join pydantic-ai agents: record their tools' calls and tell the model what the fleet knows.

agent = Agent(model, capabilities=[FleetLore()])
async with fleet.session(goal) as session:
    await agent.run(goal)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution, ToolFailedError, ToolRetryError

from fleetlore.agent.current import current_session

__all__ = ["FleetLore"]


class FleetLore(AbstractCapability[Any]):
    """Records in the session that the agent runs in; without one it does nothing."""

    def get_instructions(self) -> Callable[[Any], str | None]:
        return _brief

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        session = current_session()
        if session is None:
            return await handler(args)
        with session.action(call.tool_name, args, call_id=call.tool_call_id) as action:
            try:
                action.result = result = await handler(args)
            except (ApprovalRequired, CallDeferred, SkipToolExecution):
                action.abandon()  # put off, or answered by somebody else
                raise
            except ToolRetryError as error:  # made of a `ModelRetry`, by which a tool refuses a call
                action.end(error_text=str(error.tool_retry.content))
                raise
            except ToolFailedError as error:  # made of a `ToolFailed`
                action.end(error_text=str(error))
                raise
        return result


def _brief(ctx: Any) -> str | None:
    session = current_session()
    # Instructions are made anew for each request, so what they said before has to be said again.
    return None if session is None else session.brief(unseen=False).text or None
