"""Join LangChain and LangGraph agents: record their tools' calls and tell the model what the fleet knows.

    agent = create_agent(model, tools, middleware=[FleetMiddleware()])
    with fleet.session(goal) as session:
        agent.invoke({"messages": [("user", goal)]})

Place it after `ToolErrorMiddleware` in the list, so that it sees what a tool raised and not the message made of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import SystemMessage
from langgraph.errors import GraphBubbleUp

from fleetlore.agent.action import Action
from fleetlore.agent.current import current_session

__all__ = ["FleetMiddleware"]


class FleetMiddleware(AgentMiddleware):
    """Records in the session that the agent is invoked in; without one it does nothing. For `invoke` and `ainvoke`."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(_told(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(_told(request))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with _action(request) as action:
            try:
                return _ended(action, handler(request))
            except GraphBubbleUp:
                _put_off(action)
                raise

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with _action(request) as action:
            try:
                return _ended(action, await handler(request))
            except GraphBubbleUp:
                _put_off(action)
                raise


def _told(request: Any) -> Any:
    session = current_session()
    if session is None:
        return request
    # The system message is made anew for each call of the model, so what it said before has to be said again.
    brief = session.brief([tool.name for tool in request.tools if hasattr(tool, "name")], unseen=False).text
    said = [each for each in (request.system_prompt, brief) if each]
    return request.override(system_message=SystemMessage("\n\n".join(said))) if brief else request


def _action(request: Any) -> AbstractContextManager[Action | None]:
    session, call = current_session(), request.tool_call
    return nullcontext() if session is None else session.action(call["name"], call["args"], call_id=call["id"] or "")


def _ended(action: Action | None, message: Any) -> Any:
    """A tool's message; a `Command`, which changes the graph's state, has no text of its own."""
    if action is not None and getattr(message, "status", "") == "error":
        action.fail("", message.text)
    elif action is not None:
        action.result = getattr(message, "content", None)
    return message


def _put_off(action: Action | None) -> None:
    """The graph is interrupted, as for a person's approval: the call has not ended."""
    if action is not None:
        action.abandon()
