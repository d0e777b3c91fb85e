"""Describe tools: as the agent defined them, or else by the calls that were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from genson import SchemaBuilder

from fleetlore.wire.trajectory import Step, Trajectory
from models.export.conversation import arguments_of


def tools_by_agent(sessions: Iterable[Trajectory]) -> dict[str, list[dict[str, Any]]]:
    """The tools that each agent called, in the form of OpenAI and JSON Schema, sorted by name.

    A parameter is required where every call that worked had it. Parameters of calls that failed count only for a tool
    that never worked.
    """
    calls: defaultdict[str, defaultdict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for session in sessions:
        for step in session.calls:
            calls[session.agent][step.tool].append(step)
    return {agent: [_tool(name, made) for name, made in sorted(by_tool.items())] for agent, by_tool in calls.items()}


def as_functions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Definitions in the form of OpenAI's chat; of its responses, of Anthropic and of MCP they are rewritten to it.

    What has no name is left out: it is no tool that an agent can call by name.
    """
    stated = [tool.get("function", tool) for tool in tools]
    return [_function(tool) for tool in stated if isinstance(tool, dict) and _name(tool)]


def _name(tool: Mapping[str, Any]) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    schemas = [tool.get(name) for name in ("parameters", "input_schema", "inputSchema")]
    schema: dict[str, Any] = next((each for each in schemas if each and isinstance(each, dict)), {})
    told = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name)}
    return {"type": "function", "function": told | {"parameters": {"type": "object", "properties": {}} | schema}}


def _tool(name: str, calls: list[Step]) -> dict[str, Any]:
    builder = SchemaBuilder(schema_uri=None)
    for step in [step for step in calls if not step.failed] or calls:
        builder.add_object(arguments_of(step))
    parameters = {"properties": {}} | builder.to_schema()  # which OpenAI asks for, of a tool without parameters too
    return {"type": "function", "function": {"name": name, "parameters": parameters}}
