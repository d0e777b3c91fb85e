"""`ToolErrorMiddleware` of LangChain. 1.3 has none: its users write one, like this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from langchain.agents.middleware import ToolErrorMiddleware
except ImportError:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage
    from langgraph.errors import GraphBubbleUp

    class ToolErrorMiddleware(AgentMiddleware):
        def __init__(self, explain: Callable[[Exception, Any], str]) -> None:
            self._explain = explain

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                return handler(request)
            except GraphBubbleUp:
                raise
            except Exception as error:
                return self._answer(error, request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                return await handler(request)
            except GraphBubbleUp:
                raise
            except Exception as error:
                return self._answer(error, request)

        def _answer(self, error: Exception, request: Any) -> ToolMessage:
            text = self._explain(error, request)
            return ToolMessage(text, tool_call_id=request.tool_call["id"], status="error")
