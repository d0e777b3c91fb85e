"""Call a tool server behind `fleetlore mcp-proxy` from an MCP client. Neither knows of fleetlore.

    pip install 'fleetlore[mcp]'  # from your index
    fleetlore up --data ./lore        # in another terminal
    python examples/join_mcp.py ./lore

Run it twice: the second time the wrong call is answered by the proxy, with what got past it.
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = """
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("config")

@server.tool()
def read_config(path: str) -> str:
    if path != "/srv/app/service.toml":
        raise ToolError(f"FileNotFoundError: [Errno 2] No such file or directory: {path!r}")
    return "port = 8080"

server.run()
"""


async def main() -> None:
    where = ["--data", sys.argv[1]] if len(sys.argv) > 1 else []
    proxy = ["-m", "fleetlore.cli.main", "mcp-proxy", *where, "--agent", "mcp", "--task", "config"]
    server = StdioServerParameters(command=sys.executable, args=[*proxy, "--", sys.executable, "-c", SERVER])
    async with Client(server) as client:
        for path in ("/etc/service.toml", "/srv/app/service.toml"):
            result = await client.call_tool("read_config", {"path": path})
            print(*(getattr(part, "text", "") for part in result.content), sep="\n")


asyncio.run(main())
