"""Describe tools by the calls that were made: the events do not hold the definitions that a model was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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


def _tool(name: str, calls: list[Step]) -> dict[str, Any]:
    builder = SchemaBuilder(schema_uri=None)
    for step in [step for step in calls if not step.failed] or calls:
        builder.add_object(arguments_of(step))
    parameters = {"properties": {}} | builder.to_schema()  # which OpenAI asks for, of a tool without parameters too
    return {"type": "function", "function": {"name": name, "parameters": parameters}}
