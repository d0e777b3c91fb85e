"""Read tool calls and results from a model request, and add text for the model.

Added text is constant and last, so a provider's cached prefix stays.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from fleetlore.agent.doors import joined
from fleetlore.limits import refused
from fleetlore.transcripts.calls import Verdict, json_or_text, text_of_content, verdict_of
from fleetlore.transcripts.session import ARGUMENTS, MALFORMED, has_ended, mark_of
from fleetlore.wire.decode import read_json

T = TypeVar("T")
Body = dict[str, Any]


# Items of OpenAI's responses that call a tool of the client. Those of a tool that OpenAI defines have no name.
_NAMED, _UNNAMED = ("function_call", "custom_tool_call"), ("local_shell_call", "shell_call", "apply_patch_call")
# A conversation with more unreadable messages, or a message with more unreadable calls, passes unread.
_MAX_UNREAD = 64


class Made(NamedTuple):
    id: str
    tool: str
    arguments: object


class Result(NamedTuple):
    """The answer to a call, in `holder[key]`. `is_told`: advice can be added, because the client wrote it."""

    call: str
    holder: Body
    key: str
    tool: str = ""
    is_told: bool = True

    @property
    def value(self) -> Any:
        """Return the text, or a value without one. Images are left out."""
        content = self.holder.get(self.key) or self.holder.get("error")
        if not content and mark_of(self.holder):
            content = self.holder.get("status")
        if isinstance(content, list):
            untyped = [each for each in content if isinstance(each, dict) and "type" not in each]
            return text_of_content(content) or untyped or ""
        return "" if content is None else content

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.value, mark_of(self.holder))

    def add(self, text: str, part: str) -> None:
        holder, key, content = self.holder, self.key, self.holder.get(self.key)
        if isinstance(content, list) and content and isinstance(content[-1], dict) and "stdout" in content[-1]:
            holder, key = content[-1], "stdout"  # the shell of OpenAI's responses has no other parts
        if isinstance(holder.get(key), str | list | None):
            holder[key] = longer(holder.get(key), text, part)


class Turn(NamedTuple):
    role: str
    text: str = ""
    calls: tuple[Made, ...] = ()
    results: tuple[Result, ...] = ()


class Dialect(NamedTuple):
    turns: Callable[[Body], Iterator[Turn]]
    tell: Callable[[Body, str], None]
    part: str


def readable(parts: Iterable[Body], read: Callable[[Body], T]) -> Iterator[T]:
    """A part that cannot be read costs itself alone.

    Raises one of MALFORMED after too many of them.
    """
    left = _MAX_UNREAD
    for part in parts:
        try:
            yield read(part)
        except MALFORMED as error:
            if (left := left - 1) < 0:
                raise
            refused("unread_part", f"a part of a conversation passes unread: {error!r}")


def _chat_turn(message: Body) -> Turn:
    role = message["role"]
    if role in ("tool", "function"):
        id, name = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
        return Turn(role, results=(Result(id, message, "content", tool=name),))
    calls = [*(message.get("tool_calls") or ())]
    if message.get("function_call"):
        calls.append({"function": message["function_call"]})
    made = readable(calls, lambda call: _made(call, call.get("function") or call["custom"]))
    return Turn(role, text_of_content(message.get("content")), tuple(made))


def _made(call: Body, named: Body) -> Made:
    if not isinstance(named["name"], str):
        raise TypeError(f"the name of a called tool is {named['name']!r}")
    return Made(
        _id(call), named["name"], json_or_text(next((named[each] for each in ARGUMENTS if each in named), None))
    )


def _id(call: Body) -> str:
    """Some servers of local models give no id."""
    return str(call.get("call_id") or call.get("id") or "")


def _tell_chat(body: Body, text: str) -> None:
    first = body["messages"][0] if body["messages"] else {}
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        first["content"] = longer(first.get("content"), text)
    else:
        body["messages"].insert(0, {"role": "system", "content": text})


def _of_messages(body: Body) -> Iterator[Turn]:
    yield Turn("system", text_of_content(body.get("system")))
    yield from readable(body["messages"], _message_turn)


def _message_turn(message: Body) -> Turn:
    content = message["content"]
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    kinds = [(str(each.get("type")), each) for each in blocks]
    # The provider runs tools itself, of whose blocks no text may be changed.
    calls = readable((each for kind, each in kinds if kind.endswith("tool_use")), lambda each: _made(each, each))
    results = [
        Result(str(each.get("tool_use_id") or ""), each, "content", is_told=kind == "tool_result")
        for kind, each in kinds
        if kind.endswith("tool_result")
    ]
    return Turn(message["role"], text_of_content(content), tuple(calls), tuple(results))


def _tell_messages(body: Body, text: str) -> None:
    body["system"] = longer(body.get("system"), text)


def _of_responses(body: Body) -> Iterator[Turn]:
    given = body.get("input") or ()
    yield Turn("system", text_of_content(body.get("instructions")))
    yield from readable([{"role": "user", "content": given}] if isinstance(given, str) else given, _item_turn)


def _item_turn(item: Body) -> Turn:
    kind = item.get("type", "message")
    if kind.endswith("_output") and kind.removesuffix("_output") in (*_NAMED, *_UNNAMED):
        return Turn("tool", results=(Result(str(item.get("call_id") or ""), item, "output"),))
    if call := call_of_item(item):
        return Turn("assistant", calls=(call,))
    if kind.endswith("_call") and has_ended(item):
        made = _made(item, {"name": kind, **item})
        key = next((name for name in ("output", "outputs", "results") if item.get(name)), "output")
        return Turn("assistant", calls=(made,), results=(Result(made.id, item, key, is_told=False),))
    return Turn(item.get("role", "assistant"), text_of_content(item.get("content")))


def call_of_item(item: Body) -> Made | None:
    """Return None for items that the client does not answer."""
    kind = item.get("type")
    return _made(item, {**item, "name": kind} if kind in _UNNAMED else item) if kind in (*_NAMED, *_UNNAMED) else None


_STREAMED = (b"response.output_item.done", b"response.completed", b"response.incomplete")


def response_of(answer: bytes) -> dict[str, Any] | None:
    """Return the response in an answer, whole or streamed, or None."""
    if answer.lstrip()[:1] == b"{":
        found: dict[str, Any] = read_json(answer)
        return found if "output" in found else None
    items = []
    for line in answer.splitlines():
        # vLLM writes the type last.
        if not line.startswith(b"data:") or not any(ending in line for ending in _STREAMED):
            continue
        event = read_json(line[5:])
        if event["type"] == "response.output_item.done":
            items.append(event["item"])
        elif event["type"] in ("response.completed", "response.incomplete"):
            whole: dict[str, Any] = event["response"]
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


CHAT_COMPLETIONS = Dialect(lambda body: readable(body["messages"], _chat_turn), _tell_chat, "text")
RESPONSES = Dialect(_of_responses, _tell_responses, "input_text")
ANTHROPIC_MESSAGES = Dialect(_of_messages, _tell_messages, "text")
