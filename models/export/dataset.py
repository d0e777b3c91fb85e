"""Write a dataset for trainers of language models: rows to train and to test on, a card, and what it was made from.

A row is a line of JSON with `prompt`, `chosen`, `rejected` and `tools`, as TRL's documentation ("Dataset formats and
types") states them: arguments are objects, and `tools` is JSON text, because a column of a table has one shape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from genson import SchemaBuilder
from msgspec.structs import replace

from fleetlore.errors import ConfigError
from fleetlore.wire.events import Definitions
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.export.rows import AGENT_SHARE, TEST_SHARE, Message, Row, arguments_of, is_test, rows_of, usable_sessions
from models.memory.identities import identities, replacing, texts_of

_NOTHING: Mapping[str, Definitions] = {}
_LEFT_OUT = {
    "guarded": "broke a rule that the environment guards",
    "abstained": "judged by nobody",
    "part": "a part of a longer session",
    "incomplete": "events are missing",
    "recalled": "its texts quote advice",
}


def anonymous(session: Trajectory) -> Trajectory:
    """The session with identities replaced, as in lore (`models.memory.identities`); itself where none is found."""
    found = identities(texts_of(session))
    if not found:
        return session
    replaced = replacing(found)

    def told(step: Step) -> Step:
        error = step.error_message
        return replace(
            step,
            arguments=replaced(step.arguments),
            result=replaced(step.result),
            error_message=replaced(error) if error else error,
        )

    return replace(session, goal=replaced(session.goal), steps=tuple([told(step) for step in session.steps]))


def anonymous_definitions(given: Definitions) -> Definitions:
    """The same definitions with identities in their system text replaced."""
    return replace(given, system=replacing(identities([given.system]))(given.system))


def write_dataset(
    judgments: Iterable[Judgment],
    folder: Path,
    given: Mapping[str, Definitions] = _NOTHING,
) -> dict[str, Any]:
    """Write `train.jsonl`, `test.jsonl`, `README.md` (a card) and `sessions.json` into a folder; return the figures.

    Rows and their order are a function of the set of sessions.

    Args:
        given: what models were given besides, by the hash that sessions name it by.

    Raises:
        ConfigError: the folder is not empty or cannot be written; there is no row.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not an empty folder: a dataset is written into one of its own")
    kept, left_out = usable_sessions(judgments)
    kept = [replace(each, trajectory=anonymous(each.trajectory)) for each in kept]
    given = {id: anonymous_definitions(each) for id, each in given.items()}
    rows = rows_of(kept, given)
    if not rows:
        raise ConfigError(f"{len(kept):,} sessions to learn from hold no pair; left out: {dict(left_out)}")
    defined = {id: as_functions(each.tools) for id, each in given.items() if each.tools}
    by_calls = tools_by_agent(each.trajectory for each in kept)
    parts = {"train": [row for row in rows if not is_test(row)], "test": [row for row in rows if is_test(row)]}
    sessions = sorted({session for row in rows for session in row.sessions})
    figures = {
        "rows": {name: len(part) for name, part in parts.items()},
        "row_kinds": dict(sorted(Counter(row.kind for row in rows).items())),
        "agents": len({row.agent for row in rows}),
        "tasks": len({row.task for row in rows}),
        "sessions": len(sessions),
        "sessions_left_out": dict(sorted(left_out.items())),
        "rows_with_defined_tools": sum(row.definitions in defined for row in rows),
        "judged_by": dict(sorted(_judges(kept, sessions).items())),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            lines = [_line(row, defined.get(row.definitions) or by_calls[row.agent]) for row in part]
            (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
        (folder / "sessions.json").write_bytes(orjson.dumps({"agents": figures["agents"], "sessions": sessions}))
        (folder / "README.md").write_text(_card(figures, rows))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None
    return figures


def _line(row: Row, tools: Sequence[dict[str, Any]]) -> bytes:
    told = {
        "prompt": [_message(each) for each in row.prompt],
        "chosen": [_message(row.chosen)],
        "rejected": [_message(row.rejected)],
        "tools": orjson.dumps(tools).decode(),
    }
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def _message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.answers:
        told["name"] = message.answers.tool
    if message.call:
        function = {"name": message.call.tool, "arguments": arguments_of(message.call)}
        told["tool_calls"] = [{"type": "function", "function": function}]
    return told


def _judges(kept: Sequence[Judgment], sessions: Sequence[str]) -> Counter[str]:
    held = set(sessions)
    return Counter(each.verdict.source for each in kept if each.trajectory.id in held)


def _card(figures: Mapping[str, Any], rows: Sequence[Row]) -> str:
    largest = Counter(row.agent for row in rows).most_common(1)[0][1] / len(rows)
    counts = [(f"rows of `{name}.jsonl`", count) for name, count in figures["rows"].items()]
    counts += [(f"rows from a {name}", n) for name, n in figures["row_kinds"].items()]
    counts += [(name, figures[name]) for name in ("sessions", "agents", "tasks")]
    counts += [("rows whose tools the agent defined", figures["rows_with_defined_tools"])]
    counts += [(f"sessions judged by {name}", count) for name, count in figures["judged_by"].items()]
    counts += [(f"sessions left out: {_LEFT_OUT[name]}", n) for name, n in figures["sessions_left_out"].items()]
    table = "\n".join(f"| {what} | {count:,} |" for what, count in counts)
    return f"""---
tags: [fleetlore, tool-use, preference]
configs:
- config_name: default
  data_files:
  - {{split: train, path: train.jsonl}}
  - {{split: test, path: test.jsonl}}
---

# What a fleet of agents did, as pairs of calls

Two calls from one state: `chosen` worked, `rejected` failed. For preference optimisation (DPO), as TRL reads it.

| | |
| --- | --- |
{table}

- **Split** by task: {TEST_SHARE:.0%} of the tasks are for testing, and no task is on both sides.
- **Agents**: none gives more than {AGENT_SHARE:.0%} of the rows, or twice its equal part where they are few; the most
  that one gives here is {largest:.0%}.
- **Left out** besides: calls that were cut, hold a masked secret, or followed advice, and failures that pass by
  themselves.
- **Tools** are as the agent defined them (`Fleet.session(tools=...)`); where it did not, they are described by the
  calls that were made: names and types of arguments, no descriptions.
- **People**: what fleetlore recognises as an identity of an end user is replaced (e-mail, phone, card, fields such as
  `last_name`). A name in free text is not recognised. Secrets were masked before the sessions were stored.
- **Erasure**: `sessions.json` lists the sessions. Where one of them is erased, make the dataset anew.
"""


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
