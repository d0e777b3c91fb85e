"""Distil a strategy: the calls that solved a task.

A session that failed says nothing here: where an error tells why, that is a recovery's business, and where none does,
the way of those that succeeded is what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import orjson

from fleetlore.fingerprint.fingerprint import arguments_text, parsed
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import MAX_GOAL, MAX_STEP, REMEMBERED, VERSION, Calls, item_id, line
from models.memory.candidate import SUCCESS_ABOVE, Candidate, origin
from models.memory.danger import is_dangerous

_MAX_OUTLINE_BYTES = 3_000
_MAX_OUTLINE = 24
THOUGHT = "thought"

# Of arguments that are cut, or spelled as Python does: they cannot be parsed.
_THOUGHT = re.compile(rf"\s*\{{\s*(['\"]){THOUGHT}\1\s*:")


def strategies(judgment: Judgment, calls: Calls) -> list[Candidate]:
    """The way of a session that solved its task, without the calls that failed; none of any other session."""
    trajectory = judgment.trajectory
    if not trajectory.task or judgment.verdict.probability <= SUCCESS_ABOVE or not calls or calls[-1].failed:
        return []
    way = [call for call in calls if not call.failed and not _is_thought(call)]
    if not way:
        return []
    return [
        Candidate(
            **origin(trajectory),
            item_id=item_id(trajectory.tenant, "strategy", trajectory.task),
            kind="strategy",
            side="success",
            title=line(trajectory.goal, MAX_GOAL),
            when=f"the task is {trajectory.task}",
            task=trajectory.task,
            calls=_outline(way),
            danger=any(map(is_dangerous, way)),
            version=VERSION,
        )
    ]


def _is_thought(call: Step) -> bool:
    """Whether a call only takes down what the agent thinks, as tools of that kind name it (`think(thought=…)`, the MCP
    server `sequentialthinking`): nobody else is to repeat that.
    """
    value = parsed(call.arguments)
    return THOUGHT in value if isinstance(value, dict) else _THOUGHT.match(call.arguments) is not None


def _outline(calls: Sequence[Step]) -> tuple[str, ...]:
    """One text a call, so that equal calls of two sessions are equal texts."""
    half = _MAX_OUTLINE // 2
    kept = calls if len(calls) <= _MAX_OUTLINE else [*calls[:half], *calls[-half:]]
    limit = MAX_STEP
    while True:
        texts = tuple([_outlined(call.tool, call.arguments, limit) for call in kept])
        # A state holds eight outlines and must fit a field of the store: up to six bytes a character in escaped JSON.
        short = 6 * sum(map(len, texts)) <= _MAX_OUTLINE_BYTES
        if short or limit <= 8 or len(orjson.dumps(texts)) <= _MAX_OUTLINE_BYTES:
            return texts
        limit //= 2


@lru_cache(maxsize=REMEMBERED)
def _outlined(tool: str, arguments: str, limit: int) -> str:
    """A call with its JSON in one spelling."""
    if arguments[:1] in ("{", "["):
        arguments = arguments_text(parsed(arguments))
    return line(f"{tool}({arguments})", limit)
