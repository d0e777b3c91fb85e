"""Distil a strategy: a way that solved a task against one that did not.

Attempts that were started together without a task have their group as task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import orjson

from fleetlore.fingerprint.fingerprint import arguments_text, parsed
from fleetlore.wire.lore import ERROR_MET
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import MAX_GOAL, MAX_STEP, REMEMBERED, VERSION, Calls, error_text, item_id, line
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, origin
from models.memory.danger import is_dangerous

MAX_OUTLINE_BYTES = 3_000
MAX_OUTLINE = 24
MAX_ERRORS = 3
THOUGHT = "thought"

# Of arguments that are cut, or spelled as Python does: they cannot be parsed.
_THOUGHT = re.compile(rf"\s*\{{\s*(['\"]){THOUGHT}\1\s*:")


def strategies(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """One side of a task's contrast; the item exists once the other side has arrived."""
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    succeeded = probability > SUCCESS_ABOVE
    task = trajectory.task or trajectory.group
    if not task or not calls or (calls[-1].failed if succeeded else probability >= FAILURE_BELOW):
        return []
    # A success without its failed calls; a failure with every call.
    way = [call for call in calls if not (succeeded and call.failed) and not _is_thought(call)]
    errors = [] if succeeded else list(dict.fromkeys([error_text(calls[place]) for place in telling]))
    return [
        Candidate(
            **origin(trajectory),
            item_id=item_id(trajectory.tenant, "strategy", task),
            kind="strategy",
            side="success" if succeeded else "failure",
            title=line(trajectory.goal, MAX_GOAL),
            content="\n".join(f"{ERROR_MET}{error}" for error in errors[:MAX_ERRORS]),
            when=f"the task is {task}",
            task=task,
            calls=outline(way),
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


def outline(calls: Sequence[Step]) -> tuple[str, ...]:
    """One text a call, so that equal calls of two sessions are equal texts."""
    half = MAX_OUTLINE // 2
    kept = calls if len(calls) <= MAX_OUTLINE else [*calls[:half], *calls[-half:]]
    limit = MAX_STEP
    while True:
        texts = tuple([_outlined(call.tool, call.arguments, limit) for call in kept])
        # A state holds eight outlines and must fit a field of the store: up to six bytes a character in escaped JSON.
        short = 6 * sum(map(len, texts)) <= MAX_OUTLINE_BYTES
        if short or limit <= 8 or len(orjson.dumps(texts)) <= MAX_OUTLINE_BYTES:
            return texts
        limit //= 2


@lru_cache(maxsize=REMEMBERED)
def _outlined(tool: str, arguments: str, limit: int) -> str:
    """A call with its JSON in one spelling."""
    if arguments[:1] in ("{", "["):
        arguments = arguments_text(parsed(arguments))
    return line(f"{tool}({arguments})", limit)
