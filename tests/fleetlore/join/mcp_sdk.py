"""`Client` of the official MCP SDK. The SDK's 1.x gets the part of it that the tests use, over stdio and in memory."""

from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

try:
    from mcp import Client
except ImportError:  # 1.x
    from mcp.shared.memory import create_connected_server_and_client_session as connected

    class Client:
        def __init__(self, server: Any) -> None:
            self._server, self._stack = server, AsyncExitStack()

        async def __aenter__(self) -> Any:
            if isinstance(self._server, StdioServerParameters):
                streams = await self._stack.enter_async_context(stdio_client(self._server))
                session = await self._stack.enter_async_context(ClientSession(*streams))
                self.instructions = (await session.initialize()).instructions
            else:
                session = await self._stack.enter_async_context(connected(self._server._mcp_server))
            self._session = session
            return self

        async def __aexit__(self, *error: Any) -> None:
            await self._stack.aclose()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        async def list_resource_templates(self) -> Any:
            found = await self._session.list_resource_templates()
            return SimpleNamespace(resource_templates=found.resourceTemplates)

        async def call_tool(self, name: str, arguments: Any) -> Any:
            found = await self._session.call_tool(name, arguments)
            return SimpleNamespace(
                content=found.content, is_error=found.isError, structured_content=found.structuredContent
            )


# The HTTP client of 1.x is one of `httpx`, and speaks no protocol without sessions.
IS_OLD = Client.__module__ == __name__
OVER_HTTP = pytest.mark.skipif(IS_OLD, reason="mcp 1.x")
