"""Join LangChain and LangGraph agents.

    agent = create_agent(model, tools, middleware=[FleetMiddleware()])
    with fleet.session(goal) as session:
        agent.invoke({"messages": [("user", goal)]})

Place it after `ToolErrorMiddleware`, so that it sees what a tool raised.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage, convert_to_messages
from langgraph.errors import GraphBubbleUp

from fleetlore.agent.action import Action, current_session
from fleetlore.agent.doors import after_call, prompt_prefix
from fleetlore.agent.session import Session
from fleetlore.calls.call import mcp_name
from fleetlore.join.dialects import longer

__all__ = ["FleetMiddleware"]


class FleetMiddleware(AgentMiddleware):
    """Records in the session of `invoke` or `ainvoke`, if any."""

    def __init__(self) -> None:
        super().__init__()
        # By call id: an error's message is often made further out.
        self._advice: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self._told(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(self._told(request))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with self._recorded(request) as call:
            return call if isinstance(call, ToolMessage) else _ended(call, handler(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with self._recorded(request) as call:
            return call if isinstance(call, ToolMessage) else _ended(call, await handler(request))

    def _told(self, request: Any) -> Any:
        session = current_session()
        if session is None:
            return request
        names = {_name(tool.name, tool): tool.name for tool in request.tools if hasattr(tool, "name")}
        session.know_as(names)
        prefix = prompt_prefix(session, list(names))
        given = request.system_message
        system = SystemMessage(prefix) if given is None else _longer(given, prefix)
        advice = self._advice.get(session, {})
        messages = [
            _longer(each, advice[each.tool_call_id])
            if isinstance(each, ToolMessage) and each.tool_call_id in advice
            else each
            for each in request.messages
        ]
        return request.override(system_message=system, messages=messages)

    @contextmanager
    def _recorded(self, request: Any) -> Iterator[Action | ToolMessage | None]:
        session, call = current_session(), request.tool_call
        if session is None:
            yield None
            return
        tool, id = _name(call["name"], request.tool), call["id"] or ""
        session.know_as({tool: call["name"]})
        if (held := session.hold(tool, call["args"])) is not None:
            yield ToolMessage(held.text, tool_call_id=call["id"], name=call["name"], status="error")
            return
        action = session.action(tool, call["args"], call_id=id)
        try:
            with action:
                try:
                    yield action
                except GraphBubbleUp:  # interrupted, as for a person's approval
                    action.abandon()
                    raise
        finally:
            if text := after_call(session, failed=action.error is not None):
                self._advice.setdefault(session, {})[id] = text


def _ended(action: Action | None, answer: Any) -> Any:
    """A `Command` holds the call's message, or none."""
    if action is not None:
        answers = answer if isinstance(answer, list) else [answer]
        updates = [update for each in answers if isinstance(update := getattr(each, "update", None), dict)]
        messages = [*answers, *(each for update in updates for each in _messages_of(update))]
        found = (each for each in messages if getattr(each, "tool_call_id", None) == action.call_id)
        message = next(found, answer)
        # LangChain marks every result without a known failure as a success.
        failed = getattr(message, "status", "") == "error" or None
        action.returned(message.text if failed else getattr(message, "content", None), failed=failed)
    return answer


def _messages_of(update: dict[str, Any]) -> list[BaseMessage]:
    given: Any = update.get("messages")
    found: list[BaseMessage] = []
    for each in given if isinstance(given, list) else [given]:
        with suppress(Exception):  # a graph's state may hold something else under this key
            found += convert_to_messages([each])
    return found


def _name(name: str, tool: Any) -> str:
    """`langchain-mcp-adapters` does not name a tool's server."""
    module = getattr(getattr(tool, "coroutine", None), "__module__", None) or ""
    return mcp_name("", name) if module.startswith("langchain_mcp_adapters.") else name


def _longer(message: BaseMessage, text: str) -> BaseMessage:
    return message.model_copy(update={"content": longer(message.content, text)})
