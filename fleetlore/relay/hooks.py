"""Answer the hooks of coding agents on this machine, a session each; `fleetlore install` sets them up."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from fleetlore.agent.fleet import Fleet
from fleetlore.agent.named_sessions import NamedSessions
from fleetlore.agent.session import Session
from fleetlore.join.hooks import CODING_AGENTS, HookCalls, begins, in_claudes_words
from fleetlore.relay.callers import Caller
from fleetlore.relay.sessions import Member
from fleetlore.wire.events import MAX_ID_LENGTH

__all__ = ["Hooks"]

_MAX_GOAL = 2_000
_MAX_TOOLS = 256


class Hooks:
    """The sessions of coding agents. After a silence one is left, and its next call begins a further part of it."""

    def __init__(self) -> None:
        self.sessions = NamedSessions(lambda session: self._calls.pop(session).close())
        self._calls: dict[Session, HookCalls] = {}
        # By tenant, agent and client: no hook is told the tools, and those of MCP servers are known once called.
        self._tools: dict[tuple[str, str, str], dict[str, None]] = {}

    def answer(self, fleet: Fleet, caller: Caller, client: str, body: bytes) -> dict[str, Any]:
        """What to answer to a hook.

        Raises:
            HTTPException: the client is not known (404), or this is no hook of it (400).
            ConfigError: a name in it is malformed.
            DecodeError: the body is no JSON object.
        """
        if client not in CODING_AGENTS:
            raise HTTPException(404, f"{client!r} is none of {', '.join(CODING_AGENTS)}")
        try:
            given = in_claudes_words(client, msgspec.json.decode(body, type=dict[str, Any]))
            return self._answer(fleet, caller, client, given)
        except (KeyError, TypeError) as error:
            raise HTTPException(400, f"no hook of {client}: {error!r}") from None

    def _answer(self, fleet: Fleet, caller: Caller, client: str, given: Any) -> dict[str, Any]:
        event, id = given["hook_event_name"], given["session_id"]
        name = "\x1f".join((caller.tenant, caller.agent, client, id))
        if event == "SessionEnd":
            self.sessions.leave(name)
            return {}
        if event == "SessionStart" and name not in self.sessions and not begins(given):
            return {}  # its goal is known by its first prompt
        goal = str(given.get("prompt", ""))[:_MAX_GOAL]
        session = self.sessions.enter(name, lambda: Member(fleet, caller.agent).session(goal, "", id, resume=True))
        tools = self._tools.setdefault((caller.tenant, caller.agent, client), dict.fromkeys(CODING_AGENTS[client]))
        tool = str(given.get("tool_name") or "")
        if 0 < len(tool) <= MAX_ID_LENGTH and len(tools) < _MAX_TOOLS:
            tools[tool] = None
        return self._calls.setdefault(session, HookCalls(session, tools.keys(), client)).take(given)
