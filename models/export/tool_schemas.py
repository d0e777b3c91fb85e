"""Describe tools by the calls that were made: the events do not hold the definitions that a model was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fleetlore.wire.trajectory import Step, Trajectory
from models.export.conversation import arguments_of

_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),  # before int, which it is
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def tools_by_agent(sessions: Iterable[Trajectory]) -> dict[str, list[dict[str, Any]]]:
    """The tools that each agent called, in the form of OpenAI and JSON Schema, sorted by name.

    A parameter is required where every call that worked had it. Parameters of calls that failed count only for a tool
    that never worked.
    """
    calls: defaultdict[str, defaultdict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for session in sessions:
        for step in session.calls:
            calls[session.agent][step.tool].append(step)
    return {agent: [_schema(tool, made) for tool, made in sorted(by_tool.items())] for agent, by_tool in calls.items()}


def _schema(tool: str, calls: list[Step]) -> dict[str, Any]:
    seen = [arguments_of(step) for step in calls if not step.failed] or [arguments_of(step) for step in calls]
    types: defaultdict[str, set[str]] = defaultdict(set)
    for arguments in seen:
        for name, value in arguments.items():
            types[name].add(_type(value))
    properties = {name: {"type": next(iter(kinds))} if len(kinds) == 1 else {} for name, kinds in sorted(types.items())}
    required = [name for name in properties if all(name in arguments for arguments in seen)]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": tool, "parameters": parameters}}


def _type(value: object) -> str:
    return next((name for known, name in _TYPES if isinstance(value, known)), "null")
