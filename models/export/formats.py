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
from models.export.conversation import Message, arguments_of
from models.export.rows import Kind, Row

Format = Literal["trl", "openai"]
Tools = Sequence[dict[str, Any]]


def writer(kind: Kind, format: Format) -> Callable[[Row, Tools], bytes]:
    """A function that makes the line of a row, given the tools of its agent.

    Raises:
        ConfigError: the format has no such rows.
    """
    if format == "trl":
        return _trl
    if kind == "kto":
        raise ConfigError("OpenAI trains on pairs and sft; kto is a format of TRL")
    return _openai_pair if kind == "pairs" else _openai_session


def _trl(row: Row, tools: Tools) -> bytes:
    parts = {name: _trl_messages(part) if isinstance(part, list) else part for name, part in row.parts.items()}
    return _line(parts | {"tools": orjson.dumps(tools).decode()})


def _trl_messages(messages: Sequence[Message]) -> list[Message]:
    return [_trl_message(each) for each in messages]


def _trl_message(message: Message) -> Message:
    told = {"role": message["role"], "content": message["content"]}
    if "of" in message:
        told["name"] = message["of"].tool
    if "tool_calls" in message:
        told["tool_calls"] = [
            {"type": "function", "function": {"name": step.tool, "arguments": arguments_of(step)}}
            for step in message["tool_calls"]
        ]
    return told


def _openai_session(row: Row, tools: Tools) -> bytes:
    return _line({"messages": _openai_messages(row.parts["messages"]), "tools": tools, "parallel_tool_calls": False})


def _openai_pair(row: Row, tools: Tools) -> bytes:
    asked = {"messages": _openai_messages(row.parts["prompt"]), "tools": tools, "parallel_tool_calls": False}
    chosen, rejected = _openai_messages(row.parts["chosen"]), _openai_messages(row.parts["rejected"])
    return _line({"input": asked, "preferred_output": chosen, "non_preferred_output": rejected})


def _openai_messages(messages: Sequence[Message]) -> list[Message]:
    return [_openai_message(each) for each in messages]


def _openai_message(message: Message) -> Message:
    told = {"role": message["role"], "content": message["content"]}
    if "of" in message:
        told["tool_call_id"] = f"call_{message['of'].sequence}"
    if "tool_calls" in message:
        told["tool_calls"] = [
            {
                "id": f"call_{step.sequence}",
                "type": "function",
                "function": {"name": step.tool, "arguments": orjson.dumps(arguments_of(step)).decode()},
            }
            for step in message["tool_calls"]
        ]
    return told


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
