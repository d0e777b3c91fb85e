"""Run between an MCP client and any MCP server, and record and advise the calls of the server's tools.

Over stdio the server is a child process; over streamable HTTP it is an address. What the proxy does not know, such as
resources, prompts, sampling and authorisation, passes through as it is.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from fleetlore.agent.session import Session
from fleetlore.errors import ConfigError
from fleetlore.join.mcp.calls import McpCalls

__all__ = ["run_command"]

# For a server to end by itself once its client has gone.
_END_SECONDS = 5.0


def run_command(command: Sequence[str], session: Session) -> int:
    """Run an MCP server as a child, between it and the client on this process's stdin and stdout; its exit code.

    Raises:
        ConfigError: there is no such command.
    """
    try:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise ConfigError(f"the MCP server {command[0]!r} cannot be started: {error.strerror}") from None
    assert server.stdin is not None and server.stdout is not None
    calls, writing = McpCalls(session), threading.Lock()

    def to_client(message: bytes) -> None:
        with writing:
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.flush()

    threading.Thread(target=_from_client, args=(server, calls, to_client), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        for line in server.stdout:
            to_client(calls.from_server(line))
    except (BrokenPipeError, KeyboardInterrupt):  # the client has gone
        server.terminate()
    finally:
        calls.close()
    return server.wait()


def _from_client(server: subprocess.Popen[bytes], calls: McpCalls, to_client: Callable[[bytes], None]) -> None:
    assert server.stdin is not None
    # Where the server or the client has gone, whoever reads the server's output ends the proxy.
    with suppress(OSError):
        # A file of its own: the process's end would wait for a thread that reads `sys.stdin`.
        with open(0, "rb", closefd=False) as client:
            for line in client:
                onward, answer = calls.from_client(line)
                if answer:
                    to_client(answer)
                else:
                    server.stdin.write(onward)
                    server.stdin.flush()
        server.stdin.close()
    try:
        server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        server.terminate()
