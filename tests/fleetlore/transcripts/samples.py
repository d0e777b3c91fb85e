"""Write chats as the real packages of their makers do: one call that worked and one that failed.

`python -m tests.fleetlore.transcripts.samples` writes those of the installed versions to `tests/data`.
"""

import asyncio
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data"
PATHS, FAULT, FOUND = ("/etc/shadow", "/srv/a"), "Permission denied: '/etc/shadow'", "text of /srv/a"


def openai_chat() -> list[Any]:
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageFunctionToolCall
    from openai.types.chat.chat_completion_message_function_tool_call import Function

    calls: list[Any] = []
    for path in PATHS:
        function = Function(name="read_file", arguments=json.dumps({"path": path}))
        calls.append(ChatCompletionMessageFunctionToolCall(id=f"call_{path}", type="function", function=function))
    made = ChatCompletionMessage(role="assistant", content=None, tool_calls=calls).model_dump(mode="json")
    texts = zip(PATHS, (f"Error: {FAULT}", FOUND), strict=True)
    results = [{"role": "tool", "tool_call_id": f"call_{path}", "content": text} for path, text in texts]
    return [{"role": "user", "content": "look"}, made, *results]


def openai_responses() -> list[Any]:
    from openai.types.responses import ResponseFunctionToolCall

    items: list[Any] = [{"role": "user", "content": "look"}]
    for path, text in zip(PATHS, (f"Error: {FAULT}", FOUND), strict=True):
        call = ResponseFunctionToolCall(
            type="function_call", call_id=path, name="read_file", arguments=json.dumps({"path": path})
        )
        items += [call.model_dump(mode="json"), {"type": "function_call_output", "call_id": path, "output": text}]
    return items


def anthropic() -> list[Any]:
    from anthropic.types import ToolUseBlock

    uses = [ToolUseBlock(type="tool_use", id=path, name="read_file", input={"path": path}) for path in PATHS]
    results = [
        {"type": "tool_result", "tool_use_id": path, "content": text, "is_error": text == FAULT}
        for path, text in zip(PATHS, (FAULT, FOUND), strict=True)
    ]
    return [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [use.model_dump(mode="json") for use in uses]},
        {"role": "user", "content": results},
    ]


def _langchain() -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    calls: list[Any] = [{"name": "read_file", "args": {"path": path}, "id": path} for path in PATHS]
    failed = ToolMessage(FAULT, tool_call_id=PATHS[0], name="read_file", status="error")
    return [HumanMessage("look"), AIMessage("", tool_calls=calls), failed, ToolMessage(FOUND, tool_call_id=PATHS[1])]


def langchain_model_dump() -> list[Any]:
    return [each.model_dump(mode="json") for each in _langchain()]


def langchain_messages_to_dict() -> list[Any]:
    from langchain_core.messages import messages_to_dict

    return messages_to_dict(_langchain())


def langchain_dumpd() -> list[Any]:
    from langchain_core.load import dumpd

    return [dumpd(each) for each in _langchain()]


def pydantic_ai() -> list[Any]:
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("read_file", {"path": path}, path) for path in PATHS])

    def read_file(path: str) -> str:
        if path == PATHS[0]:
            raise ModelRetry(FAULT)
        return FOUND

    found = asyncio.run(Agent(FunctionModel(answer), tools=[read_file]).run("look"))
    return list(json.loads(found.all_messages_json()))


def mcp() -> list[Any]:
    from mcp.types import CallToolResult, TextContent

    chat = openai_chat()
    failed = CallToolResult(content=[TextContent(type="text", text=FAULT)], isError=True)
    chat[2]["content"] = failed.model_dump_json(by_alias=True, exclude_none=True)
    return chat


#: By maker and form: the package that has the version, and what writes the chat.
SAMPLES: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "openai-chat": ("openai", openai_chat),
    "openai-responses": ("openai", openai_responses),
    "anthropic": ("anthropic", anthropic),
    "langchain-model-dump": ("langchain-core", langchain_model_dump),
    "langchain-messages-to-dict": ("langchain-core", langchain_messages_to_dict),
    "langchain-dumpd": ("langchain-core", langchain_dumpd),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
    "mcp": ("mcp", mcp),
}


def shape_of(value: Any) -> Any:
    """Names and types of a value, without what differs from run to run."""
    if isinstance(value, dict):
        return {name: shape_of(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    return value if name_like(value) else type(value).__name__


def name_like(value: Any) -> bool:
    """Whether a value names a kind, as `tool_call` does, so that a change of it is one of the form."""
    return isinstance(value, str) and value.isascii() and value.replace("-", "").replace("_", "").isalpha()


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for name, (package, write) in SAMPLES.items():
        text = json.dumps({"id": name, "messages": write()}, indent=1) + "\n"
        (DATA / f"{name}-{version(package)}.json").write_text(text)


if __name__ == "__main__":
    main()
