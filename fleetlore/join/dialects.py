"""Read tool calls and results from a model request, and add text for the model.

Added text is constant and last, so a provider's cached prefix stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fleetlore.agent.doors import joined
from fleetlore.transcripts.calls import Verdict, json_or_text, text_of_content, verdict_of
from fleetlore.wire.decode import read_json

Body = dict[str, Any]


class Made(NamedTuple):
    id: str
    tool: str
    arguments: object


class Result(NamedTuple):
    """The answer to a call, in `holder[key]`. `marked`: as an error or not, or None."""

    call: str
    holder: Body
    key: str
    marked: bool | None = None
    tool: str = ""

    @property
    def text(self) -> str:
        return text_of_content(self.holder.get(self.key))

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.text, self.marked)

    def add(self, text: str, part: str) -> None:
        self.holder[self.key] = longer(self.holder.get(self.key), text, part)


class Turn(NamedTuple):
    role: str
    text: str = ""
    calls: tuple[Made, ...] = ()
    results: tuple[Result, ...] = ()


class Dialect(NamedTuple):
    turns: Callable[[Body], Iterator[Turn]]
    tell: Callable[[Body, str], None]
    part: str


def _of_chat(body: Body) -> Iterator[Turn]:
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            id, name = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
            yield Turn(role, results=(Result(id, message, "content", tool=name),))
            continue
        made = ((_id(each), each.get("function") or each["custom"]) for each in message.get("tool_calls") or ())
        calls = [Made(id, each["name"], json_or_text(each.get("arguments", each.get("input")))) for id, each in made]
        yield Turn(role, text_of_content(message.get("content")), tuple(calls))


def _id(call: Body) -> str:
    """Some servers of local models give no id."""
    return str(call.get("call_id") or call.get("id") or "")


def _tell_chat(body: Body, text: str) -> None:
    first = body["messages"][0] if body["messages"] else {}
    if first.get("role") in ("system", "developer"):
        first["content"] = longer(first.get("content"), text)
    else:
        body["messages"].insert(0, {"role": "system", "content": text})


def _of_messages(body: Body) -> Iterator[Turn]:
    yield Turn("system", text_of_content(body.get("system")))
    for message in body["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else []
        calls = [Made(_id(each), each["name"], each.get("input")) for each in blocks if each["type"] == "tool_use"]
        results = [
            Result(str(each.get("tool_use_id") or ""), each, "content", each.get("is_error"))
            for each in blocks
            if each["type"] == "tool_result"
        ]
        yield Turn(message["role"], text_of_content(content), tuple(calls), tuple(results))


def _tell_messages(body: Body, text: str) -> None:
    body["system"] = longer(body.get("system"), text)


def _of_responses(body: Body) -> Iterator[Turn]:
    given = body.get("input") or ()
    yield Turn("system", text_of_content(body.get("instructions")))
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind in ("function_call_output", "custom_tool_call_output"):
            yield Turn("tool", results=(Result(str(item.get("call_id") or ""), item, "output"),))
        elif call := call_of_item(item):
            yield Turn("assistant", calls=(call,))
        else:
            yield Turn(item.get("role", "assistant"), text_of_content(item.get("content")))


def call_of_item(item: Body) -> Made | None:
    """Return None for items that the client does not answer."""
    if item.get("type") not in ("function_call", "custom_tool_call"):
        return None
    return Made(_id(item), item["name"], json_or_text(item.get("arguments", item.get("input"))))


def response_of(answer: bytes) -> dict[str, Any] | None:
    """Return the response in an answer, whole or streamed, or None."""
    if answer[:1] == b"{":
        found: dict[str, Any] = read_json(answer)
        return found if "output" in found else None
    items = []
    for line in answer.splitlines():
        if line.startswith(b"data:") and b"response.output_item.done" in line[:100]:
            items.append(read_json(line[5:])["item"])
        elif line.startswith(b"data:") and b"response.completed" in line[:100]:
            whole: dict[str, Any] = read_json(line[5:])["response"]
            # Some servers omit what they have streamed.
            return whole if whole.get("output") else {**whole, "output": items}
    return None


def _tell_responses(body: Body, text: str) -> None:
    # Instructions would replace those of a stored prompt.
    if body.get("instructions") or not body.get("prompt"):
        body["instructions"] = joined(body.get("instructions"), text)


def longer(content: Any, text: str, part: str = "text") -> Any:
    """Append a text. Parts keep their `cache_control`."""
    if isinstance(content, list):
        return [*content, {"type": part, "text": text}]
    return joined(content, text)


CHAT_COMPLETIONS = Dialect(_of_chat, _tell_chat, "text")
RESPONSES = Dialect(_of_responses, _tell_responses, "input_text")
ANTHROPIC_MESSAGES = Dialect(_of_messages, _tell_messages, "text")
