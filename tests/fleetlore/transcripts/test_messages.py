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


# Beside these, `test_samples.py` reads what the packages of OpenAI, Anthropic, LangChain and pydantic-ai wrote.
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
    "AutoGen": [
        {"source": "user", "type": "TextMessage", "content": "go"},
        {"source": "a", "type": "ToolCallRequestEvent", "content": [{**OPENAI["function"], "id": "c1"}]},
        {"source": "a", "type": "ToolCallExecutionEvent",
         "content": [{"call_id": "c1", "name": "search", "content": ERROR, "is_error": True}]},
    ],
    "Vercel AI SDK, parts beside the content": [
        {"role": "user", "content": "go", "parts": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": "", "parts": [{"type": "tool-invocation", "toolInvocation": {
            "state": "result", "toolCallId": "c1", "toolName": "search", "args": Q, "result": {"error": ERROR}}}]},
    ],
    "Microsoft Agent Framework": [
        {"role": "user", "contents": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "contents": [
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": Q}]},
        {"role": "tool", "contents": [{"type": "function_result", "call_id": "c1", "exception": ERROR}]},
    ],
    "Semantic Kernel": [
        {"role": "user", "items": [{"content_type": "text", "text": "go"}]},
        {"role": "assistant", "items": [
            {"content_type": "function_call", "id": "c1", "name": "search", "arguments": Q}]},
        {"role": "tool", "items": [{"content_type": "function_result", "id": "c1", "result": f"Error: {ERROR}"}]},
    ],
    "Gemini, code that it ran": [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [
            {"executableCode": {"name": "search", "code": Q}},
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": ERROR}}]},
    ],
    "Haystack": [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [{"tool_call": {"id": "c1", "tool_name": "search", "arguments": Q}}]},
        {"role": "tool", "content": [{"tool_call_result": {"result": ERROR, "error": True, "origin": {"id": "c1"}}}]},
    ],
    "LlamaIndex": [
        {"role": "user", "blocks": [{"block_type": "text", "text": "go"}]},
        {"role": "assistant", "additional_kwargs": {"tool_calls": [OPENAI]}, "blocks": [
            {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "search", "tool_kwargs": Q}]},
        {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"},
         "blocks": [{"block_type": "text", "text": f"Error: {ERROR}"}]},
    ],
    "LangChain, calls of OpenAI alone": [
        {"type": "human", "content": "go"},
        {"type": "ai", "content": "", "tool_calls": [], "additional_kwargs": {"tool_calls": [OPENAI]}},
        {"type": "tool", "tool_call_id": "c1", "status": "error", "content": ERROR},
    ],
    "OpenAI chat, as a database wrote it": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": msgspec.json.encode([OPENAI]).decode()},
        {"role": "tool", "tool_call_id": "c1", "content": {"error": ERROR}},
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


@for_each("bare", True, False)
@for_each("form", *CHATS)
def test_every_maker_s_chat_says_the_same(form: str, bare: bool, tmp_path: Path) -> None:
    [session] = read(tmp_path, CHATS[form] if bare else {"messages": CHATS[form]})
    assert session is not None and session.goal == "go" and not session.unanswered and not session.left_out
    [data] = [data for kind, data in session.events if kind == "outcome"]
    assert data[ev.TOOL] == "search" and data[ev.ARGUMENTS] == Q
    assert ERROR in data[ev.ERROR_MESSAGE]


@for_each(
    "item, arguments, error",
    ({"type": "web_search_call", "status": "failed", "action": Q}, Q, "failed"),
    ({"type": "file_search_call", "status": "completed", "queries": ["x"], "results": [Q]}, ["x"], None),
    ({"type": "code_interpreter_call", "status": "completed", "code": "1", "outputs": None}, 1, None),
    ({"type": "code_interpreter_call", "code": "1", "outputs": [{"logs": "Error: no row"}]}, 1, "Error: no row"),
)
def test_a_call_that_the_maker_ran_ends_by_its_status(
    item: dict[str, Any], arguments: object, error: str | None, tmp_path: Path
) -> None:
    [session] = read(tmp_path, [{"role": "user", "content": "go"}, {"id": "w1", **item}])
    assert session is not None and not session.unanswered
    data = session.events[-1][1]
    assert (data[ev.TOOL], data[ev.ARGUMENTS], data.get(ev.ERROR_MESSAGE)) == (item["type"], arguments, error)


def test_a_call_that_a_person_denied_in_the_vercel_ai_sdk_was_never_made(tmp_path: Path) -> None:
    part = {"type": "tool-search", "toolCallId": "c1", "state": "output-denied", "input": Q}
    [session] = read(tmp_path, [{"role": "assistant", "parts": [part]}])
    assert session is not None and not session.events and session.left_out == {"call that was never made": 1}


@for_each(
    "odd, left_out",
    ({"speaker": "a", "line": "go"}, "message with the keys line, speaker"),
    ({"role": "user", "content": [{"glyph": 1}]}, "part with the keys glyph"),
    ({"role": "tool-call", "content": []}, "message of type tool-call with the keys content, role"),
    *(
        ({"type": "assistant", name: [{"tool": "search"}]}, f"message of type assistant with the keys {name}, type")
        for name in ("actions", "toolUses", "tool_uses", "functionCalls", "observations")
    ),
)
def test_what_is_in_no_known_form_is_counted_with_its_keys(odd: dict[str, Any], left_out: str, tmp_path: Path) -> None:
    [session] = read(tmp_path, {"messages": [*CHATS["OpenAI chat"], odd, odd]})
    assert session is not None and len(session.events) == 2 and session.left_out == {left_out: 2}


@pytest.mark.parametrize(
    "odd",
    [
        {"role": "assistant", "tool_calls": [3]},
        {"role": "assistant", "tool_calls": 3},
        {"role": 3, "content": 3},
        {"role": "assistant", "tool_calls": [None, {**OPENAI, "id": "c2"}]},
        "go",
        None,
    ],
)
def test_a_malformed_part_costs_only_itself(odd: Any, tmp_path: Path) -> None:
    answer = {**CHATS["OpenAI chat"][2], "tool_call_id": "c2"}
    [session] = read(tmp_path, {"messages": [*CHATS["OpenAI chat"], odd, answer]})
    is_answered = "c2" in str(odd)
    assert session is not None and session.left_out.total() == (1 if is_answered else 2)
    assert len(session.events) == (3 if is_answered else 2)


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

    talk.call, talk.result = counted_call, counted_result
    for message in messages:
        take_message(talk, message, 0.0)
    session = talk.done()
    outcomes = sum(kind == "outcome" for kind, _ in session.events)
    never_made, no_call = (session.left_out[reason] for reason in ("call that was never made", "result without a call"))
    assert made == outcomes + never_made + session.unanswered
    assert answered == outcomes + never_made + no_call


@for_each("about", {}, {"id": "thread-1"})
def test_a_log_of_requests_counts_each_call_once(about: dict[str, str], tmp_path: Path) -> None:
    """Each request repeats the conversation so far, and the log has more of them in a later import."""
    turns = [
        [{"role": "user", "content": "go"}],
        CHATS["OpenAI chat"][1:2],
        [CHATS["OpenAI chat"][2], {"role": "assistant", "content": "none"}, {"role": "user", "content": "again"}],
        CHATS["OpenAI chat"][1:],
    ]
    requests = [{**about, "messages": [each for turn in turns[:count] for each in turn]} for count in range(1, 5)]
    other = {**about, "id": "other", "messages": [*turns[0], *turns[3]]}
    found = [each for each in read(tmp_path, *requests, other) if each is not None]
    calls = [sum(kind == "outcome" for kind, _ in each.events) for each in found]
    assert calls == [0, 0, 1, 1, 1] and len({each.session for each in found}) == 5
    assert all(each.goal == "go" for each in found) and found[3].left_out.total() == 4
    earlier = read(tmp_path, *requests[:3])
    assert [each and (each.session, each.events) for each in earlier] == [
        (each.session, each.events) for each in found[:3]
    ]


def test_a_request_that_was_sent_again_counts_no_call_again_and_equal_trials_do(tmp_path: Path) -> None:
    chat = CHATS["OpenAI chat"]
    for requests, calls in (([chat[:1], chat, chat, chat], [0, 1, 0, 0]), ([chat, chat], [1, 1])):
        found = read(tmp_path, *requests)
        assert [each and sum(kind == "outcome" for kind, _ in each.events) for each in found] == calls


def test_chats_in_indented_json_have_ids_of_their_own_and_one_line_keeps_its_id(tmp_path: Path) -> None:
    path, found = tmp_path / "x.json", set[str]()
    for chat in ({"messages": CHATS["Anthropic"]}, {"messages": CHATS["AutoGen"]}, CHATS["Bedrock"], CHATS["Haystack"]):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(chat)))
        found |= {each.session for each in read_files("messages", [path]) if each is not None}
    assert len(found) == 4
    [session] = read(tmp_path, chat)
    before = Conversation("messages", msgspec.json.encode(chat)).session
    assert session is not None and session.session == before.session


@for_each("name", "messages", "conversation", "trajectory", "inputs", "batch", "text")
def test_a_session_is_found_where_its_maker_puts_it(name: str, tmp_path: Path) -> None:
    chat = CHATS["OpenAI chat"]
    others = {"inputs": {"inputs": {"messages": chat}}, "batch": {"messages": [chat]}}
    others["text"] = {"messages": msgspec.json.encode(chat).decode()}
    [session] = read(tmp_path, others.get(name, {name: chat}))
    assert session is not None and session.goal == "go" and len(session.events) == 2


def test_a_file_of_tau2_bench_is_read(tmp_path: Path) -> None:
    call = {"id": "c1", "name": "search", "arguments": Q, "requestor": "assistant"}
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    answer = {"role": "tool", "id": "c1", "content": ERROR, "requestor": "assistant", "error": True}
    run = {"id": "s1", "task_id": "7", "reward_info": {"reward": 0.0}, "messages": [*said, answer]}
    [session] = read(tmp_path, {"timestamp": "x", "info": {}, "tasks": [{"id": "7"}], "simulations": [run]})
    assert session is not None and (session.task, session.outcome, session.reward) == ("7", "failure", 0.0)
    assert session.events[-1][1][ev.ERROR_MESSAGE] == ERROR


@for_each("parts", [], None)
@for_each("name", "parts", "contents", "items", "blocks")
def test_empty_parts_hide_no_message(name: str, parts: object, tmp_path: Path) -> None:
    for form in ("OpenAI chat", "Vercel AI SDK, tool invocations"):
        [session] = read(tmp_path, [{**message, name: parts} for message in CHATS[form]])
        assert session is not None and session.goal == "go" and not session.left_out
        assert [kind for kind, _ in session.events] == ["message", "outcome"]
    [session] = read(tmp_path, [*CHATS["Gemini"], {"role": "model", "parts": []}])
    assert session is not None and not session.left_out


def test_names_of_keys_are_bounded_and_printable(tmp_path: Path) -> None:
    odd = [{f"{number}\x1b[31m" * 100: 1, **dict.fromkeys(map(str, range(100)))} for number in range(100)]
    [session] = read(tmp_path, {"messages": odd})
    assert session is not None and session.left_out.total() == 100 and len(session.left_out) <= 33
    assert all(reason.isprintable() and len(reason) < 500 for reason in session.left_out)


def test_an_array_whose_first_line_begins_a_session_and_gemini_s_contents_are_read(tmp_path: Path) -> None:
    for chat in ({"messages": CHATS["Anthropic"]}, {"contents": CHATS["Gemini"]}):
        text = msgspec.json.format(msgspec.json.encode([chat, chat])).decode().replace("[\n  {", "[{", 1)
        (tmp_path / "x.json").write_text(text)
        found = list(read_files("messages", [tmp_path / "x.json"]))
        assert [each is not None and [kind for kind, _ in each.events] for each in found] == [
            ["message", "outcome"]
        ] * 2


@for_each(
    "text, sessions",
    ("[CHAT,\n CHAT]", 2),  # as `json_agg` of PostgreSQL writes it
    ('{ "messages": [\n MESSAGE,\n MESSAGE\n]}', 1),
    ('{"id": "1",\n"messages": [MESSAGE]}', 1),
    ('{"messages":\n[MESSAGE]}', 1),
)
def test_the_first_line_of_a_document_may_end_anywhere(text: str, sessions: int, tmp_path: Path) -> None:
    message = '{"role": "user", "content": "go"}'
    chat = f'{{"messages": [{message}]}}'
    (tmp_path / "x.json").write_text(text.replace("CHAT", chat).replace("MESSAGE", message))
    found = list(read_files("messages", [tmp_path / "x.json"]))
    assert [each is not None and each.goal for each in found] == ["go"] * sessions


def test_arguments_that_could_not_be_read_are_a_failed_call(tmp_path: Path) -> None:
    call = {"name": "search", "args": '{"q": ', "id": "c1", "error": "Unterminated string", "type": "invalid_tool_call"}
    [session] = read(
        tmp_path, [{"type": "human", "content": "go"}, {"type": "ai", "content": "", "invalid_tool_calls": [call]}]
    )
    assert session is not None and session.events[-1][1][ev.ERROR_MESSAGE] == "Unterminated string"
