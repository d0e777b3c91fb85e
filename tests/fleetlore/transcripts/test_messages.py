"""Chats in the form of every known maker say the same; parts in no known form are counted with their keys."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.transcripts.read import read_files
from fleetlore.transcripts.session import Conversation, LoggedSession, take_message
from fleetlore.wire import events as ev
from tests.rows import for_each

Q, ERROR = {"q": "x"}, "no index x"
OPENAI = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
CALL = {"name": "search", "args": Q, "id": "c1"}


def kwargs(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}


CHATS: dict[str, list[dict[str, Any]]] = {
    "OpenAI chat": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [OPENAI]},
        {"role": "tool", "tool_call_id": "c1", "content": f"Error: {ERROR}"},
    ],
    "OpenAI functions": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": OPENAI["function"]},
        {"role": "function", "name": "search", "content": f"Error: {ERROR}"},
    ],
    "OpenAI responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "search", "arguments": '{"q": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": f"Error: {ERROR}"},
    ],
    "Anthropic": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "…"},
                                          {"type": "tool_use", "id": "c1", "name": "search", "input": Q}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": True,
                                      "content": [{"type": "text", "text": ERROR}]}]},
    ],
    "Gemini": [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "search", "args": Q}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"error": ERROR}}}]},
    ],
    "Bedrock": [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "search", "input": Q}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "status": "error",
                                                     "content": [{"text": ERROR}]}}]},
    ],
    "LangChain, model_dump": [
        {"type": "human", "content": "go"},
        {"type": "ai", "content": "", "tool_calls": [CALL], "invalid_tool_calls": []},
        {"type": "tool", "tool_call_id": "c1", "status": "error", "content": ERROR},
    ],
    "LangChain, messages_to_dict": [
        {"type": "human", "data": {"content": "go"}},
        {"type": "ai", "data": {"content": [], "tool_calls": [CALL]}},
        {"type": "tool", "data": {"tool_call_id": "c1", "status": "error", "content": ERROR}},
    ],
    "LangChain, dumpd": [
        kwargs("HumanMessage", content="go"),
        kwargs("AIMessage", content="", tool_calls=[CALL]),
        kwargs("ToolMessage", tool_call_id="c1", status="error", content=ERROR),
    ],
    "Vercel AI SDK, model messages": [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "search", "input": Q}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "search",
                                      "output": {"type": "error-text", "value": ERROR}}]},
    ],
    "Vercel AI SDK, UI messages": [
        {"role": "user", "parts": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "parts": [{"type": "step-start"}, {"type": "tool-search", "toolCallId": "c1", "input": Q,
                                                                 "state": "output-error", "errorText": ERROR}]},
    ],
    "Vercel AI SDK, tool invocations": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "toolInvocations": [
            {"state": "result", "toolCallId": "c1", "toolName": "search", "args": Q, "result": {"error": ERROR}}]},
    ],
    "OpenAI responses, a tool of MCP": [
        {"role": "user", "content": "go"},
        {"type": "mcp_call", "id": "m1", "name": "search", "arguments": '{"q": "x"}', "output": None, "error": ERROR},
    ],
    "OpenAI responses, a failed item": [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "status": "failed", "output": ERROR},
    ],
    "OpenAI chat, an error beside the content": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [OPENAI]},
        {"role": "tool", "tool_call_id": "c1", "content": "", "error": {"message": ERROR}},
    ],
    "Anthropic, a tool of the server": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "c1", "name": "search", "input": Q},
            {"type": "search_tool_result", "tool_use_id": "c1", "is_error": True, "content": ERROR}]},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "search", "args": Q,
                                        "tool_call_id": "c1"}]},
        {"kind": "request", "parts": [{"part_kind": "retry-prompt", "tool_name": "search", "content": ERROR,
                                       "tool_call_id": "c1"}]},
    ],
    "AutoGen": [
        {"source": "user", "type": "TextMessage", "content": "go"},
        {"source": "a", "type": "ToolCallRequestEvent", "content": [{**OPENAI["function"], "id": "c1"}]},
        {"source": "a", "type": "ToolCallExecutionEvent",
         "content": [{"call_id": "c1", "name": "search", "content": ERROR, "is_error": True}]},
    ],
    "OpenTelemetry": [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": Q}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": f"Error: {ERROR}"}]},
    ],
}  # fmt: skip


def read(folder: Path, *sessions: object) -> list[LoggedSession | None]:
    (folder / "x.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, sessions)))
    return list(read_files("messages", [folder / "x.jsonl"]))


@for_each("bare", [True, False])
@for_each("form", CHATS)
def test_every_maker_s_chat_says_the_same(form: str, bare: bool, tmp_path: Path) -> None:
    [session] = read(tmp_path, CHATS[form] if bare else {"messages": CHATS[form]})
    assert session is not None and session.goal == "go" and not session.unanswered and not session.left_out
    [data] = [data for kind, data in session.events if kind == "outcome"]
    assert data[ev.TOOL] == "search" and data[ev.ARGUMENTS] == Q
    assert ERROR in data[ev.ERROR_MESSAGE]


def test_messages_and_parts_in_no_known_form_are_counted_with_their_keys(tmp_path: Path) -> None:
    odd = [{"speaker": "a", "line": "go"}, {"speaker": "b", "line": "ok"}, {"role": "user", "content": [{"glyph": 1}]}]
    [session] = read(tmp_path, {"messages": [*CHATS["OpenAI chat"], *odd]})
    assert session is not None and len(session.events) == 2
    assert session.left_out == {"message with the keys line, speaker": 2, "part with the keys glyph": 1}


@pytest.mark.parametrize("name", ["actions", "toolUses", "tool_uses", "functionCalls", "observations"])
def test_a_message_whose_calls_are_in_a_field_of_another_name_is_counted(name: str, tmp_path: Path) -> None:
    odd = {"role": "assistant", "content": "I search.", name: [{"tool": "search"}]}
    [session] = read(tmp_path, {"messages": [{"role": "user", "content": "go"}, odd]})
    assert session is not None and len(session.events) == 2
    [(reason, count)] = session.left_out.items()
    assert count == 1 and reason.startswith("message of type assistant") and name in reason


@pytest.mark.parametrize(
    "odd", [{"role": "assistant", "tool_calls": [3]}, {"role": "assistant", "tool_calls": 3}, {"role": 3, "content": 3}]
)
def test_a_malformed_message_costs_only_itself(odd: dict[str, Any], tmp_path: Path) -> None:
    [session] = read(tmp_path, {"messages": [*CHATS["OpenAI chat"], odd]})
    assert session is not None and len(session.events) == 2 and session.left_out.total() <= 1


@given(st.lists(st.sampled_from([part for chat in CHATS.values() for part in chat]), max_size=12))
def test_every_call_and_result_of_a_mixed_chat_is_accounted_for(messages: list[dict[str, Any]]) -> None:
    made, answered, talk = 0, 0, Conversation("messages", "s")
    call, result = talk.call, talk.result

    def counted_call(*given: Any) -> None:
        nonlocal made
        made += 1
        call(*given)

    def counted_result(*given: Any) -> None:
        nonlocal answered
        answered += 1
        result(*given)

    talk.call, talk.result = counted_call, counted_result  # type: ignore[method-assign]
    for message in messages:
        take_message(talk, message, 0.0)
    session = talk.done()
    outcomes = sum(kind == "outcome" for kind, _ in session.events)
    never_made, no_call = (session.left_out[reason] for reason in ("call that was never made", "result without a call"))
    assert made == outcomes + never_made + session.unanswered
    assert answered == outcomes + never_made + no_call


def test_names_of_keys_are_bounded_and_printable(tmp_path: Path) -> None:
    odd = [{f"{number}\x1b[31m" * 100: 1, **dict.fromkeys(map(str, range(100)))} for number in range(100)]
    [session] = read(tmp_path, {"messages": odd})
    assert session is not None and session.left_out.total() == 100 and len(session.left_out) <= 33
    assert all(reason.isprintable() and len(reason) < 500 for reason in session.left_out)


def test_a_call_in_an_unknown_notation_is_counted(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Calling tools:\n[{'id': 'c1'}]"}]
    chat = [
        {"role": "user", "content": "go"},
        *({"role": role, "content": parts} for role in ("tool-call", "tool-response")),
    ]
    [session] = read(tmp_path, {"messages": chat})
    assert session is not None and len(session.events) == 1
    assert [reason.partition(" with")[0] for reason in session.left_out] == [
        "message of type tool-call", "message of type tool-response",
    ]  # fmt: skip


def test_an_array_whose_first_line_begins_a_session_and_gemini_s_contents_are_read(tmp_path: Path) -> None:
    for chat in ({"messages": CHATS["Anthropic"]}, {"contents": CHATS["Gemini"]}):
        text = msgspec.json.format(msgspec.json.encode([chat, chat])).decode().replace("[\n  {", "[{", 1)
        (tmp_path / "x.json").write_text(text)
        found = list(read_files("messages", [tmp_path / "x.json"]))
        assert [each is not None and [kind for kind, _ in each.events] for each in found] == [
            ["message", "outcome"]
        ] * 2


def test_arguments_that_could_not_be_read_are_a_failed_call(tmp_path: Path) -> None:
    call = {"name": "search", "args": '{"q": ', "id": "c1", "error": "Unterminated string", "type": "invalid_tool_call"}
    [session] = read(
        tmp_path, [{"type": "human", "content": "go"}, {"type": "ai", "content": "", "invalid_tool_calls": [call]}]
    )
    assert session is not None and session.events[-1][1][ev.ERROR_MESSAGE] == "Unterminated string"
