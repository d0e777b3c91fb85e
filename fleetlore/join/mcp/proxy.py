"""Run between an MCP client and any MCP server, and record the calls of its tools.

Only four messages change: the server's instructions, its tools' descriptions, a call sure to fail (answered here,
once), and a failed call's answer.
"""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import msgspec

from fleetlore.agent.action import Action
from fleetlore.agent.doors import after_call, joined, prompt_prefix, tool_note
from fleetlore.agent.session import Session
from fleetlore.calls.call import mcp_name
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.transcripts.calls import OpenCalls, text_of_content, verdict_of
from fleetlore.wire.decode import read_json, rewritten

__all__ = ["MAX_MESSAGE", "McpCalls", "lines_of", "run_command"]

# A longer message passes in pieces and unread.
MAX_MESSAGE = 64 * 1024 * 1024

# Words of a command that do not name its server.
_STARTERS = re.compile(
    r"-.*|.*[=\s].*|(npx|uvx?|pipx|pnpm|yarn|bunx?|deno|node|docker|podman|run|exec|dlx|x|tool|env)|python.*", re.DOTALL
)

_CALL = "tools/call"
_BEGINNINGS = ("initialize", "server/discover")
_LIST = "tools/list"
_MAX_OPEN = 1024
# Codes of errors that say nothing of the tool: a person must visit an address, and the request was cancelled.
_UNDECIDED = (-32042, -32800)
# Until a server ends after its client.
_END_SECONDS = 5.0


class McpCalls:
    """The calls of one connection, in one session. For any version of JSON-RPC, and any thread."""

    def __init__(self, session: Session, server: str = "") -> None:
        self._session = session
        self._prefix = mcp_name(server, "") if server.strip("_ ") else ""
        if self._prefix:
            session.know_as({self._prefix: ""})
        self._begun = OpenCalls[Action | str](_abandon, _MAX_OPEN)

    def from_client(self, message: bytes) -> tuple[bytes, bytes]:
        if self._session.is_open:
            with self._session.fleet.guard:
                if answer := self._read_requests(message):
                    return b"", answer
        return message, b""

    def from_server(self, message: bytes) -> bytes:
        if self._begun and self._session.is_open and (b'"result"' in message or b'"error"' in message):
            with self._session.fleet.guard:
                return self._read_answers(message)
        return message

    def _read_requests(self, message: bytes) -> bytes:
        """Return the answer to a call that is held, or nothing."""
        requests = _parsed(message)[:_MAX_OPEN]
        # A batch passes whole, because its answers come in one message.
        if len(requests) == 1 and not _is_batch(message) and (answer := self._held(requests[0])):
            return msgspec.json.encode(answer) + _end_of(message)
        for each in requests:
            self._take_request(each)
        return b""

    def _read_answers(self, message: bytes) -> bytes:
        answers = _parsed(message)
        if not any([self._take_answer(each) for each in answers]):
            return message
        return rewritten(message.strip(), answers if _is_batch(message) else answers[0]) + _end_of(message)

    @property
    def under_way(self) -> int:
        return sum(isinstance(each, Action) for each in self._begun)

    def close(self) -> None:
        self._begun.close()

    def _held(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """An error need not follow the tool's output schema."""
        id, params = message.get("id"), message.get("params")
        if message.get("method") != _CALL or not isinstance(params, dict) or isinstance(id, list | dict):
            return None
        advice = self._session.hold(self._named(params), params.get("arguments"))
        if advice is None:
            return None
        # Newer protocols require `resultType`; older ones allow it.
        result = {"resultType": "complete", "content": [{"type": "text", "text": advice.text}], "isError": True}
        return {"jsonrpc": "2.0", "id": id, "result": result}

    def _take_request(self, message: dict[str, Any]) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        if isinstance(id, list | dict):
            return  # the server will report it
        if method == _CALL and isinstance(params, dict):
            tool = self._named(params)
            self._begun.add(_key(id), tool, self._session.begin(tool, params.get("arguments")))
        elif method in (*_BEGINNINGS, _LIST):
            self._begun.add(_key(id), method, method)
        elif method == "notifications/cancelled" and isinstance(params, dict):
            _abandon(self._begun.pop(_key(params.get("requestId"))))

    def _take_answer(self, message: dict[str, Any]) -> bool:
        id = _key(message.get("id"))
        begun = self._begun.pop(id) if "method" not in message and id in self._begun else None
        if begun is None:
            return False
        try:
            return self._end(begun, message)
        except Exception:
            _abandon(begun)
            raise

    def _end(self, begun: Action | str, message: dict[str, Any]) -> bool:
        result, error = message.get("result"), message.get("error")
        if isinstance(begun, str):
            add = self._note if begun == _LIST else self._introduce
            if not isinstance(result, dict) or not add(result):
                return False
            if result.get("cacheScope") == "public":  # the addition is this agent's
                result["cacheScope"] = "private"
            return True
        if not isinstance(result, dict):
            said, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
            said, made = verdict_of(str(said or arguments_text(error)), True)
            if error is None or not made or code in _UNDECIDED:
                begun.abandon()
            else:
                begun.end(error_text=said)
            return False
        content, structured = result.get("content"), result.get("structuredContent")
        if content is None and structured is None:  # more input is needed, or the answer comes in a separate call
            begun.abandon()
            return False
        given = content if isinstance(content, list) else [] if content is None else [content]
        parts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in given]
        text = text_of_content([each.get("resource") or each for each in parts if isinstance(each, dict)])
        text, marked = text or (arguments_text(structured) if structured else ""), result.get("isError")
        error, made = verdict_of(text, marked if isinstance(marked, bool) else None)
        if not made:
            begun.abandon()
            return False
        begun.end(None if error is not None else structured or text or parts, error_text=error)
        advice = after_call(self._session, failed=error is not None)
        if advice:
            result["content"] = [*parts, {"type": "text", "text": advice}]
        return bool(advice)

    def _introduce(self, result: dict[str, Any]) -> bool:
        given = result.get("instructions")
        if given is not None and not isinstance(given, str):
            return False  # the client will report it
        result["instructions"] = joined(given, prompt_prefix(self._session))
        return True

    def _note(self, result: dict[str, Any]) -> bool:
        listed = result.get("tools")
        tools = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        tools = [each for each in tools if isinstance(each.get("description"), str | None)]
        notes = [(each, note) for each in tools if (note := tool_note(self._session, self._named(each)))]
        for tool, note in notes:
            tool["description"] = joined(tool.get("description"), note)
        return bool(notes)

    def _named(self, tool: dict[str, Any]) -> str:
        return f"{self._prefix}{tool.get('name')}"


def _key(id: object) -> str:
    """Some clients answer 1 with 1.0, and "1" is another id."""
    return repr(int(id) if isinstance(id, float) and id.is_integer() else id)


def _abandon(begun: Action | str | None) -> None:
    if isinstance(begun, Action):
        begun.abandon()


def _is_batch(message: bytes) -> bool:
    return message.lstrip()[:1] == b"["


def _end_of(message: bytes) -> bytes:
    return message[len(message.rstrip()) :]


def _parsed(message: bytes) -> list[dict[str, Any]]:
    try:
        parsed = read_json(message)
    except msgspec.DecodeError:
        return []
    return [each for each in (parsed if isinstance(parsed, list) else [parsed]) if isinstance(each, dict)]


def server_of(command: Sequence[str]) -> str:
    """A server's own name may be another's."""
    named = next((each for each in command if not _STARTERS.fullmatch(PurePath(each).name)), command[0])
    return PurePath(named).stem


def run_command(command: Sequence[str], session: Session) -> int:
    """Run an MCP server between it and the client on stdin and stdout. Return its exit code."""
    try:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise ConfigError(f"the MCP server {command[0]!r} cannot be started: {error.strerror}") from None
    assert server.stdin is not None and server.stdout is not None
    calls, writing = McpCalls(session, server_of(command)), threading.Lock()

    def to_client(message: bytes) -> None:
        with writing:
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.flush()

    threading.Thread(target=_from_client, args=(server, calls, to_client), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        for line, is_whole in lines_of(server.stdout.readline):
            to_client(calls.from_server(line) if is_whole else line)
    except (BrokenPipeError, KeyboardInterrupt):
        server.terminate()
    finally:
        calls.close()
    code = server.wait()
    return code if code >= 0 else 128 - code  # as shells do


def lines_of(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield lines, and whether each is whole: of more than `MAX_MESSAGE` bytes come pieces."""
    begins = True
    while line := read(MAX_MESSAGE):
        ends = line.endswith(b"\n") or len(line) < MAX_MESSAGE
        yield line, begins and ends
        begins = ends


def _from_client(server: subprocess.Popen[bytes], calls: McpCalls, to_client: Callable[[bytes], None]) -> None:
    assert server.stdin is not None
    # The reader of the server's output ends the proxy.
    with suppress(OSError):
        # At exit the process would wait for a thread that reads `sys.stdin`.
        with open(0, "rb", closefd=False) as client:
            for line, is_whole in lines_of(client.readline):
                onward, answer = calls.from_client(line) if is_whole else (line, b"")
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
