"""Write rows as a trainer reads them, one JSON object a line.

| | TRL | OpenAI |
| --- | --- | --- |
| `pairs` | `prompt`, `chosen`, `rejected`, `tools` | `input`, `preferred_output`, `non_preferred_output` |
| `sft` | `messages`, `tools` | `messages`, `tools` |
| `kto` | `prompt`, `completion`, `label`, `tools` | – |

As TRL's documentation ("Dataset formats and types") and OpenAI's guide to fine-tuning state them. TRL reads arguments
as objects, and `tools` as JSON text too, because a column of a table has one shape; OpenAI reads arguments as JSON text
and `tools` as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import orjson

from fleetlore.errors import ConfigError
from fleetlore.wire.trajectory import Step
from models.export.conversation import Message, arguments_of
from models.export.rows import Kind, Row

Format = Literal["trl", "openai"]
_Tools = Sequence[dict[str, Any]]


def writer(kind: Kind, format: Format) -> Callable[[Row, _Tools], bytes]:
    """A function that makes the line of a row, given the tools of its agent.

    Raises:
        ConfigError: the format has no such rows.
    """
    if format == "trl":
        return _trl
    if kind == "kto":
        raise ConfigError("OpenAI trains on pairs and sft; kto is a format of TRL")
    return _openai_pair if kind == "pairs" else _openai_session


def _trl(row: Row, tools: _Tools) -> bytes:
    parts = {name: _each(_trl_message, part) if isinstance(part, list) else part for name, part in row.parts.items()}
    return _line(parts | {"tools": orjson.dumps(tools).decode()})


def _trl_message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.answers:
        told["name"] = message.answers.tool
    if message.call:
        function = {"name": message.call.tool, "arguments": arguments_of(message.call)}
        told["tool_calls"] = [{"type": "function", "function": function}]
    return told


def _openai_session(row: Row, tools: _Tools) -> bytes:
    messages = _each(_openai_message, row.parts["messages"])
    return _line({"messages": messages, "tools": tools, "parallel_tool_calls": False})


def _openai_pair(row: Row, tools: _Tools) -> bytes:
    prompt, chosen, rejected = (_each(_openai_message, row.parts[name]) for name in ("prompt", "chosen", "rejected"))
    asked = {"messages": prompt, "tools": tools, "parallel_tool_calls": False}
    return _line({"input": asked, "preferred_output": chosen, "non_preferred_output": rejected})


def _openai_message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.answers:
        told["tool_call_id"] = _id(message.answers)
    if message.call:
        function = {"name": message.call.tool, "arguments": orjson.dumps(arguments_of(message.call)).decode()}
        told["tool_calls"] = [{"id": _id(message.call), "type": "function", "function": function}]
    return told


def _id(call: Step) -> str:
    return f"call_{call.sequence}"


def _each(told: Callable[[Message], dict[str, Any]], messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [told(each) for each in messages]


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
