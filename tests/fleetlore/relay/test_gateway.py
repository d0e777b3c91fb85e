"""What the gateway records, what it puts into requests, and what it leaves as it is."""

import asyncio
import copy
import gzip
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import ANY

import httpx2
import orjson
import pytest
import zstandard

from fleetlore import Fleet, current_session
from fleetlore.errors import ConfigError
from fleetlore.join.conversations import SILENT_SECONDS, Conversations
from fleetlore.join.dialects import ANTHROPIC_MESSAGES, CHAT_COMPLETIONS, RESPONSES, Dialect, Result
from fleetlore.join.mcp.http_proxy import forwarding_app
from fleetlore.limits import refusals
from fleetlore.relay.app import relay_app
from fleetlore.relay.callers import Caller
from fleetlore.relay.gateway import About, tell
from fleetlore.transcripts.calls import Verdict
from fleetlore.wire import events as names
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.conftest import client_of
from tests.fleetlore.relay.provider import Provider
from tests.fleetlore.relay.test_api import know_way_out
from tests.fuzz.asgi import Asked, ask
from tests.rows import for_each
from tests.served import serving

ERROR = "LookupError: index products does not exist"
NONE = About()
TOOLS = [{"type": "function", "function": {"name": "search"}}]


def chat(*results: tuple[str, str], prompt: str = "find a chair") -> dict[str, Any]:
    """A request after a turn in which the model made these calls (id, result), all of one search."""
    calls = [
        {"id": id, "type": "function", "function": {"name": "search", "arguments": '{"index":"products"}'}}
        for id, _ in results
    ]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": prompt}]
    if results:
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    messages += [{"role": "tool", "tool_call_id": id, "content": said} for id, said in results]
    return {"model": "m", "messages": messages, "tools": TOOLS}


def know(fleet: Fleet) -> None:
    know_way_out(fleet, ERROR)


@pytest.fixture
def told(fleet: Fleet) -> Any:
    """Send a request through the part that reads it; what it becomes."""
    conversations = Conversations()

    def send(body: dict[str, Any], about: About = NONE, dialect: Dialect = CHAT_COMPLETIONS, agent: str = "a1") -> Any:
        changed = copy.deepcopy(body)
        send.last = tell(conversations, fleet, agent, dialect, changed, about)
        return changed

    send.all = conversations
    return send


def heard(told: Any, fleet: Fleet, response: dict[str, Any]) -> None:
    answer = orjson.dumps(response)
    told.all.heard(told.last, answer)


def results_of(recorder: Recorder) -> list[tuple[str, bool]]:
    """Of each session that made calls: its number, and whether a call failed, call by call."""
    numbers: dict[str, str] = {}
    outcomes = [each for each in recorder.events if each.kind == "outcome"]
    return [(numbers.setdefault(each.session, f"s{len(numbers)}"), names.ERROR_TYPE in each.data) for each in outcomes]


def test_calls_side_by_side_are_told_apart(told: Any, fleet: Fleet, recorder: Recorder) -> None:
    know(fleet)
    told(chat())
    sent = told(chat(("c1", "three chairs"), ("c2", ERROR), ("c3", '{"isError": true, "content": "no"}')))
    assert results_of(recorder) == [("s0", False), ("s0", True), ("s0", True)]
    contents = [each["content"] for each in sent["messages"][3:]]
    assert contents[0] == "three chairs" and contents[1].startswith(f"{ERROR}\n\n<fleet-memory")
    assert "products-eu" in contents[1] and contents[2] == '{"isError": true, "content": "no"}'


@for_each(
    "content, marked, failed",
    ("anything", True, True),
    ("Error: in the title of a book", False, False),
)
def test_failed_and_worked_calls_are_told_apart(content: object, marked: bool | None, failed: bool) -> None:
    holder = {"content": content, "is_error": marked}
    assert Result("c1", holder, "content").verdict == Verdict(ANY if failed else None)


USER = {"role": "user", "content": "find a chair"}
CALL: dict[str, Any] = {"id": "c1", "function": {"name": "search", "arguments": "{}"}}
ASKED = {"role": "assistant", "tool_calls": [CALL]}
UNREADABLE = {
    "messages": [
        {"content": "no role"}, 3,
        {**ASKED, "tool_calls": [{"id": "x", "type": "other"}, {"id": "y", "function": {"name": None}}, CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": ERROR},
    ],
    "input": [
        3, {"type": "function_call", "call_id": "x"}, {"type": "function_call", "call_id": "c1", "name": "search"},
        {"type": "function_call_output", "call_id": "c1", "output": ERROR},
    ],
    "content": [
        "a message", {"content": "no role"},
        {"role": "assistant", "content": [
            "a text", {"text": "no type"}, {"type": "tool_use", "id": "x"},
            {"type": "tool_use", "id": "c1", "name": "search", "input": {}}]},
        {"role": "user", "content": ["a text", {"type": "tool_result", "tool_use_id": "c1", "content": ERROR}]},
    ],
}  # fmt: skip
DIALECTS = {"messages": CHAT_COMPLETIONS, "input": RESPONSES, "content": ANTHROPIC_MESSAGES}


@pytest.mark.parametrize(("form", "count"), [("messages", 4), ("input", 2), ("content", 3)])
def test_a_part_that_cannot_be_read_costs_itself_alone(told: Any, recorder: Recorder, form: str, count: int) -> None:
    before = refusals().get("unread_part", 0)
    parts = {form.replace("content", "messages"): [USER, *UNREADABLE[form]]}
    told({**parts, "tools": [3, {"function": 3}, *TOOLS]}, dialect=DIALECTS[form])
    assert results_of(recorder) == [("s0", True)] and refusals()["unread_part"] - before == count


@pytest.mark.parametrize(
    ("form", "call", "result"),
    [
        ("messages", {"role": "assistant", "function_call": CALL["function"]},
         {"role": "function", "name": "search", "content": ERROR}),
        ("messages", ASKED, {"role": "tool", "tool_call_id": "c1", "content": {"error": ERROR}}),
        ("messages", ASKED, {"role": "tool", "tool_call_id": "c1", "content": "", "error": {"message": ERROR}}),
        ("messages", ASKED, {"role": "tool", "tool_call_id": "c1", "content": ERROR, "status": "error"}),
        ("input", {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
         {"type": "shell_call_output", "call_id": "c1",
          "output": [{"stdout": "", "stderr": ERROR, "outcome": {"type": "exit", "exit_code": 2}}]}),
        ("input", {"type": "apply_patch_call", "call_id": "c1", "operation": {"type": "delete_file"}},
         {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": ERROR}),
    ],
)  # fmt: skip
def test_calls_in_every_form_of_openai_are_read(
    told: Any, recorder: Recorder, form: str, call: dict[str, Any], result: dict[str, Any]
) -> None:
    told({form: [USER, call, result], "functions": [{"name": "search"}]}, dialect=DIALECTS[form])
    [outcome] = recorder.outcomes
    assert ERROR in outcome[names.ERROR_MESSAGE]


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("content", [{"type": "mcp_tool_use", "id": "m1", "name": "search", "server_name": "s", "input": {"n": 1}},
                     {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": ERROR}]),
        ("content", [{"type": "server_tool_use", "id": "m1", "name": "search", "input": {"n": 1}},
                     {"type": "web_search_tool_result", "tool_use_id": "m1",
                      "content": {"type": "web_search_tool_result_error", "error_code": ERROR}}]),
        ("input", [{"type": "mcp_call", "id": "m1", "name": "search", "arguments": '{"n":1}', "error": ERROR}]),
    ],
)  # fmt: skip
def test_a_call_that_the_provider_ran_is_recorded_and_its_result_is_left_as_it_is(
    told: Any, fleet: Fleet, recorder: Recorder, form: str, parts: list[dict[str, Any]]
) -> None:
    know(fleet)
    name = form.replace("content", "messages")
    said = parts if form == "input" else [{"role": "assistant", "content": parts}]
    told({name: [USER], "tools": TOOLS}, dialect=DIALECTS[form])
    for _ in "12":
        sent = told({name: [USER, *said, USER], "tools": TOOLS}, dialect=DIALECTS[form])
        assert sent[name] == [USER, *said, USER]
    [outcome] = recorder.outcomes
    assert outcome[names.ARGUMENTS] == {"n": 1} and ERROR in outcome[names.ERROR_MESSAGE]


@pytest.mark.parametrize(
    ("item", "error", "result"),
    [
        ({"type": "web_search_call", "status": "failed"}, "failed", None),
        ({"type": "code_interpreter_call", "status": "completed", "code": "1/0",
          "outputs": [{"type": "logs", "logs": "ZeroDivisionError: by 0"}]}, "ZeroDivisionError: by 0", None),
        ({"type": "file_search_call", "status": "completed", "results": [{"text": "a chair"}]}, None, "a chair"),
    ],
)  # fmt: skip
def test_a_tool_of_the_provider_says_in_a_field_of_its_own_how_it_ended(
    told: Any, recorder: Recorder, item: dict[str, Any], error: str | None, result: str | None
) -> None:
    for input in ([USER], [USER, {"id": "w1", **item}, USER]):
        told({"input": input, "tools": TOOLS}, dialect=RESPONSES)
    [outcome] = recorder.outcomes
    assert (outcome.get(names.ERROR_MESSAGE), outcome.get(names.RESULT)) == (error, result)


def test_a_second_result_of_one_call_is_counted_and_not_recorded(told: Any, recorder: Recorder) -> None:
    told(chat())
    body = chat(("c1", "three chairs"))
    body["messages"].append(body["messages"][-1])
    before = refusals().get("result_without_call", 0)
    told(body)
    assert len(recorder.outcomes) == 1 and refusals()["result_without_call"] - before == 1


@for_each(
    "content, longer",
    (None, "x"),
    ("a", "a\n\nx"),
    ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}, {"type": "text", "text": "x"}]),
    ([{"stdout": "a", "stderr": ""}], [{"stdout": "a\n\nx", "stderr": ""}]),
    ({"rows": 3}, {"rows": 3}),
)
def test_advice_stands_where_the_provider_takes_a_text(content: object, longer: object) -> None:
    result = Result("c1", {"content": content}, "content")
    result.add("x", "text")
    assert result.holder["content"] == longer


CITIES = ("Oslo", "Atlantis", "Rome")


@pytest.mark.parametrize("dialect", [CHAT_COMPLETIONS, ANTHROPIC_MESSAGES])
@pytest.mark.parametrize("ids", [("", "", ""), ("f", "f", "f"), ("search", "search", "search"), ("a", "a", "b"), None])
def test_parallel_calls_with_empty_missing_or_repeated_ids_lose_no_call(
    told: Any, recorder: Recorder, ids: tuple[str, ...] | None, dialect: Dialect
) -> None:
    """Two turns of three calls side by side, sent as they grow, and each request a second time."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "weather"}]
    body = {"messages": messages, "tools": TOOLS}
    told(body, dialect=dialect)
    for turn in range(2):
        made: list[Any] = []
        answers: list[Any] = []
        for city, id in zip(CITIES, ids or (None, None, None), strict=True):
            asked, said = {"q": f"{turn} {city}"}, {"content": f"it is {turn} {city}"}
            answered = "tool_call_id" if dialect is CHAT_COMPLETIONS else "tool_use_id"
            call, answer = ({} if id is None else {name: id} for name in ("id", answered))
            if dialect is CHAT_COMPLETIONS:
                made.append({**call, "function": {"name": "search", "arguments": json.dumps(asked)}})
                answers.append({"role": "tool", "name": "search", **said, **answer})
            else:
                made.append({"type": "tool_use", "name": "search", "input": asked, **call})
                answers.append({"type": "tool_result", **said, **answer})
        if dialect is CHAT_COMPLETIONS:
            messages += [{"role": "assistant", "tool_calls": made}, *answers]
        else:
            messages += [{"role": "assistant", "content": made}, {"role": "user", "content": answers}]
        told(body, dialect=dialect)
        told(body, dialect=dialect)
    found = [(each[names.ARGUMENTS]["q"], each[names.RESULT]) for each in recorder.outcomes]
    expected = [f"{turn} {city}" for turn in range(2) for city in CITIES]
    assert found == [(text, f"it is {text}") for text in expected]
    assert recorder.kinds.count("session.started") == 1


def test_a_call_that_was_never_made_is_no_failure_of_its_tool(told: Any, recorder: Recorder) -> None:
    told(chat())
    told(chat(("c1", "The user doesn't want to proceed with this tool use."), ("c2", "three chairs")))
    assert results_of(recorder) == [("s0", False)]
    assert refusals()["call_never_made"] and len(recorder.outcomes) == 1


@pytest.mark.parametrize("last_key", ["response", "type"])
@pytest.mark.parametrize("ending", ["completed", "incomplete"])
@pytest.mark.parametrize("listed", [True, False])
def test_calls_of_a_stream_are_known_where_its_last_event_leaves_them_out(
    told: Any, recorder: Recorder, listed: bool, ending: str, last_key: str
) -> None:
    """Also where a server writes the type of an event behind its content, as vLLM does."""
    told({"input": "find a chair", "tools": [{"type": "function", "name": "search"}]}, dialect=RESPONSES)
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "search", "arguments": f'{{"n": {n}}}'} for n in range(2)
    ]
    streamed = [{"type": "response.output_item.done", "item": call} for call in calls]
    last = {"type": f"response.{ending}", "response": {"id": "r1", "output": calls if listed else []}}
    said = {"type": "response.output_text.delta", "delta": "response.completed"}
    events = [dict(sorted(each.items(), reverse=last_key == "response")) for each in [*streamed, said, last]]
    answer = b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in events)
    told.all.heard(told.last, answer)
    outputs = [{"type": "function_call_output", "call_id": f"c{n}", "output": f"found {n}"} for n in range(2)]
    told({"previous_response_id": "r1", "input": outputs}, dialect=RESPONSES)
    assert [(each[names.ARGUMENTS]["n"], each[names.RESULT]) for each in recorder.outcomes] == [
        (0, "found 0"), (1, "found 1"),
    ]  # fmt: skip


def test_runs_of_one_prompt_side_by_side_are_sessions_of_their_own(told: Any, recorder: Recorder) -> None:
    told(chat())
    told(chat())
    for id in ("a", "b"):
        told(chat((id, ERROR)))
    told(chat())  # and again, later
    told(chat(("c", ERROR)))
    assert results_of(recorder) == [("s0", True), ("s1", True), ("s2", True)]


def test_other_agents_and_sub_agents_are_sessions_of_their_own(told: Any, recorder: Recorder) -> None:
    for prompt, agent in (("find", "a1"), ("find", "a2"), ("look it up for the other", "a1")):
        told(chat(prompt=prompt), agent=agent)
        told(chat(("call_0", ERROR), prompt=prompt), agent=agent)
    assert results_of(recorder) == [("s0", True), ("s1", True), ("s2", True)]
    assert [each.agent for each in recorder.events if each.kind == "outcome"] == ["a1", "a2", "a1"]


def test_what_another_relay_has_recorded_is_not_recorded_again(told: Any, recorder: Recorder) -> None:
    """After a restart a conversation comes whole; only what its last turn brought is new."""
    body = chat(("c1", ERROR))
    body["messages"] += chat(("c2", "three chairs"))["messages"][2:]
    told(body)
    assert results_of(recorder) == [("s0", False)]


def test_a_named_conversation_is_ended_by_its_name(told: Any, recorder: Recorder) -> None:
    about = About("run-7", "find", "shop", "eu")
    told(chat(("c1", ERROR)), about)
    told(chat(("c2", "three chairs"), prompt="a sub-agent's"), about)
    assert told.all.end("default", "a1", "run-7", "success", 1.0)
    assert not told.all.end("default", "a1", "run-7", "success", 1.0)
    started, ended = recorder.events[0], recorder.events[-1]
    assert started.session.startswith("run-7.") and started.data[names.CONVERSATION] == "run-7"
    assert (started.data[names.GOAL], started.data[names.TASK], started.data[names.PLACE]) == ("find", "shop", "eu")
    assert ended.data == {names.OUTCOME: "success", names.REWARD: 1.0}
    assert results_of(recorder) == [("s0", True), ("s0", False)]


def test_a_silent_conversation_is_left(told: Any, fleet: Fleet, recorder: Recorder) -> None:
    told(chat(("c1", ERROR)))
    assert current_session() is None, "a conversation is nobody's"
    fleet.clock.advance(SILENT_SECONDS + 1.0)
    told(chat(prompt="another"))
    assert recorder.kinds[:3] == ["session.started", "outcome", "session.ended"]


def test_of_a_stored_response_only_what_is_new_comes(told: Any, fleet: Fleet, recorder: Recorder) -> None:
    tools = [{"type": "function", "name": "search"}]
    told({"input": "find a chair", "tools": tools}, dialect=RESPONSES)
    call = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
    heard(told, fleet, {"id": "r1", "output": [{"type": "reasoning"}, call]})
    fleet.clock.advance(3.0)
    output = {"type": "function_call_output", "call_id": "c1", "output": ERROR}
    told({"previous_response_id": "r1", "input": [output]}, dialect=RESPONSES)
    assert results_of(recorder) == [("s0", True)] and recorder.outcomes[0][names.DURATION] == 3.0
    told({"previous_response_id": "unknown", "input": [output]}, dialect=RESPONSES)
    assert len(recorder.outcomes) == 1, "of a call that nobody knows nothing can be said"


def test_of_stored_items_references_may_come(told: Any, fleet: Fleet, recorder: Recorder) -> None:
    body: dict[str, Any] = {"input": [{"role": "user", "content": "find a chair"}], "tools": TOOLS}
    told(body, dialect=RESPONSES)
    call = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "search", "arguments": "{}"}
    heard(told, fleet, {"id": "r1", "output": [call]})
    output = {"type": "function_call_output", "call_id": "c1", "output": ERROR}
    body["input"] += [{"type": "item_reference", "id": "fc1"}, output]
    told(body, dialect=RESPONSES)
    assert results_of(recorder) == [("s0", True)] and recorder.kinds.count("session.started") == 1


def test_a_system_message_that_changes_is_no_other_conversation(told: Any, recorder: Recorder) -> None:
    for number, results in enumerate(((), (("c1", ERROR),))):
        body = chat(*results)
        body["messages"][0]["content"] = f"Be kind. Request {number}."
        told(body)
    assert recorder.kinds == ["session.started", "outcome"]


def test_a_request_without_tools_is_no_session(told: Any, recorder: Recorder) -> None:
    body = {"messages": [{"role": "user", "content": "Write a title for this."}]}
    assert told(body) == body and told.last is None and recorder.events == []


def test_blocks_keep_what_a_client_cached(told: Any, fleet: Fleet) -> None:
    know(fleet)
    cached = {"cache_control": {"type": "ephemeral"}}
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, **cached}
    result["content"] = [{"type": "text", "text": ERROR}]
    body = {
        "system": [{"type": "text", "text": "Be kind.", **cached}],
        "messages": [
            {"role": "user", "content": "find a chair"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {}}]},
            {"role": "user", "content": [result, {"type": "text", "text": "go on"}]},
        ],
    }
    sent = told(body, dialect=ANTHROPIC_MESSAGES)
    assert sent["system"][0] == body["system"][0] and sent["messages"][:2] == body["messages"][:2]
    block, said = sent["messages"][2]["content"]
    assert block["content"][0] == result["content"][0] and "products-eu" in block["content"][1]["text"]
    assert block["cache_control"] == result["cache_control"] and said == {"type": "text", "text": "go on"}


@asynccontextmanager
async def gateway(fleet: Fleet) -> AsyncIterator[tuple[httpx2.AsyncClient, Provider]]:
    provider = Provider(lambda *messages: None)
    async with serving(provider.app) as upstream:
        app = relay_app({"default": fleet}, providers={"openai": f"{upstream}/v1", "anthropic": upstream})
        async with client_of(app) as http:
            yield http, provider


async def test_what_cannot_be_read_passes_as_it_is(fleet: Fleet, recorder: Recorder) -> None:
    bodies = [
        b"no json", b'{"messages":3,"input":3}', b'{"messages":[3],"input":[3]}', b'{"n":1e999}', b"", b'[1, "\xff"]',
        orjson.dumps({"messages": [{"role": "user"}, *[3] * 99], "input": [3] * 99, "tools": [{"name": "search"}]}),
    ]  # fmt: skip
    async with gateway(fleet) as (http, provider):
        for path in ("/openai/v1/chat/completions", "/openai/v1/responses", "/anthropic/v1/messages"):
            for body in bodies:
                await http.post(path, content=body)
    assert provider.bodies == bodies * 3 and recorder.events == []


@pytest.mark.parametrize(
    "odd", [rb'[18446744073709551617,1.10,1E5,"\u0000","a\/b"]', rb'["\ud83d",NaN,-Infinity]'], ids=["strict", "not"]
)
async def test_a_request_with_advice_keeps_every_other_value(fleet: Fleet, recorder: Recorder, odd: bytes) -> None:
    """The model of the agent gets its own ids, numbers and texts back as its client wrote them."""
    know(fleet)
    body = orjson.dumps(chat(("c1", ERROR)) | {"seed": "ODD"}).replace(b'"ODD"', odd)
    async with gateway(fleet) as (http, provider):
        await http.post("/openai/v1/chat/completions", content=body)
    [sent] = provider.bodies
    assert b"fleet-memory" in sent and odd in sent.replace(b": ", b":").replace(b", ", b",")
    assert results_of(recorder) == [("s0", True)]


def in_two_members(body: bytes) -> bytes:
    return gzip.compress(body[:9]) + gzip.compress(body[9:])


@for_each(
    "encoding, packed",
    ("gzip", gzip.compress),
    ("gzip", in_two_members),
    ("deflate", zlib.compress),
    ("Zstd", zstandard.compress),
)
async def test_a_packed_request_is_read_and_goes_on_unpacked(
    fleet: Fleet, recorder: Recorder, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    """Codex packs its requests."""
    recorder.events.clear()
    know(fleet)
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    async with gateway(fleet) as (http, provider):
        body = packed(orjson.dumps(chat(("c1", ERROR))))
        answer = await http.post("/openai/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 200 and b"fleet-memory" in provider.bodies[0]
    assert "content-encoding" not in provider.headers[0]
    assert results_of(recorder) == [("s0", True)]


@for_each("encoding", "gzip", "br", "")
async def test_a_request_that_cannot_be_unpacked_passes_as_it_is_and_is_counted(
    fleet: Fleet, recorder: Recorder, encoding: str
) -> None:
    before, headers = refusals().get("unread_request", 0), {"content-encoding": encoding}
    async with gateway(fleet) as (http, provider):
        await http.post("/openai/v1/chat/completions", content=b"\x1f\x8bcut", headers=headers)
    assert provider.bodies == [b"\x1f\x8bcut"] and provider.headers[0]["content-encoding"] == encoding
    assert refusals()["unread_request"] == before + 1 and recorder.events == []


async def test_a_fault_of_ours_changes_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("ours")

    body = orjson.dumps(chat(("c1", ERROR)))
    async with gateway(fleet) as (http, provider):
        monkeypatch.setattr(fleet.replica, "uses", fail)  # deep inside, once a part of the work is done
        answer = await http.post("/openai/v1/chat/completions", content=body)
    assert provider.bodies == [body] and answer.json()["choices"][0]["message"]["content"] == "done"


async def test_all_else_passes_through(fleet: Fleet) -> None:
    async with gateway(fleet) as (http, provider):
        models = await http.get("/openai/v1/models", params={"limit": "2 3"})
        assert models.status_code == 418 and models.headers["x-path"] == "/v1/models?limit=2+3"
        count = await http.post("/anthropic/v1/messages/count_tokens", content=b"{ }", headers={"x-api-key": "k"})
        assert count.content == b"{ }" and provider.headers[-1]["x-api-key"] == "k"
        named = await http.post("/agents/a9/openai/v1/chat/completions", json=chat(("c1", ERROR)))
        assert named.status_code == 200
        assert (await http.post("/other/v1/x")).status_code == 404
    events = fleet.emitter.events
    assert {each.agent for each in events} == {"a9"}


async def test_a_provider_that_is_away_is_told_of(fleet: Fleet, unused_address: str) -> None:
    app = relay_app({"default": fleet}, providers={"openai": f"http://{unused_address}/v1"})
    async with client_of(app) as http:
        answer = await http.post("/openai/v1/chat/completions", json=chat())
    assert answer.status_code == 502 and unused_address in answer.json()["error"]["message"]


async def test_a_path_that_no_client_can_ask_for_is_refused(fleet: Fleet) -> None:
    app = relay_app({"default": fleet}, providers={"openai": "http://127.0.0.1:9"})
    answer = await ask(app, Asked("GET", b"/openai/v1/" + b'"' * 30_000, (), b""))  # three times as long, once quoted
    assert answer.status == 400 and b"cannot be forwarded" in answer.body


async def test_headers_are_read_as_curl_sends_them(fleet: Fleet, recorder: Recorder) -> None:
    said = {"Fleetlore-Goal": "修复数据库", "Fleetlore-Session": "任务1", "Fleetlore-Agent": "josé"}
    headers = {name: value.encode() for name, value in said.items()}
    async with gateway(fleet) as (http, _):
        assert (await http.post("/openai/v1/chat/completions", json=chat(), headers=headers)).status_code == 200
    started = recorder.events[0]
    assert (started.agent, started.data[names.GOAL]) == ("josé", "修复数据库") and started.session.startswith("任务1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks5://127.0.0.1:9"), ("https_proxy", "ftp://x"), ("http_proxy", "http://[::1"),
     ("SSL_CERT_FILE", "/nowhere.pem")],
)  # fmt: skip
async def test_an_environment_without_a_client_costs_the_gateway_alone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="ALL_PROXY"):
        forwarding_app(fleet, "http://127.0.0.1:9/mcp")
    monkeypatch.undo()
    app = relay_app({"default": fleet}, providers={"openai": "http://127.0.0.1:9/v1"})
    async with serving(app) as address, httpx2.AsyncClient(base_url=address, trust_env=False) as http:
        monkeypatch.setenv(name, value)
        answer = await http.post("/openai/v1/chat/completions", json=chat())
        assert answer.status_code == 502 and "ALL_PROXY" in answer.json()["error"]["message"]
        assert (await http.post("/v1/events", json=[])).status_code == 202


async def test_a_provider_s_key_is_no_token(fleet: Fleet, recorder: Recorder) -> None:
    from hashlib import sha256

    tokens = {sha256(b"first-token-000001").digest(): Caller("default", "a1", sure=True)}
    provider = Provider(lambda *messages: None)
    async with serving(provider.app) as upstream:
        app = relay_app({"default": fleet}, tokens, {"openai": f"{upstream}/v1"})
        async with client_of(app) as http:
            path, body = "/openai/v1/chat/completions", chat(("c1", ERROR))
            bearer = {"authorization": "Bearer first-token-000001"}
            assert (await http.post(path, json=body, headers=bearer)).status_code == 401, "it would reach the provider"
            both = {"authorization": "Bearer sk-1", "fleetlore-token": "first-token-000001"}
            assert (await http.post(path, json=body, headers=both)).status_code == 200
    assert [each["authorization"] for each in provider.headers] == ["Bearer sk-1"]
    assert {each.agent for each in recorder.events} == {"a1"}


class Streams:
    """A provider that answers with the bytes that it is given, part by part, and is cut off where it should be."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.is_cut = False

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                writer.write(b"transfer-encoding: chunked\r\n\r\n")
                for part in self.parts:
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                    await writer.drain()
                if self.is_cut:
                    break
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def pass_streams(fleet: Fleet, number: int, seed: int) -> None:
    chosen, streams = random.Random(seed), Streams()
    server = await asyncio.start_server(streams.answer, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    completed = b'data: {"type":"response.completed","response":{"id":"r","output":[{"type":"function_call"}]}}\n\n'
    paths = ("openai/v1/chat/completions", "openai/v1/responses", "anthropic/v1/messages")
    app = relay_app({"default": fleet}, providers={"openai": f"{upstream}/v1", "anthropic": upstream})
    async with client_of(app) as http:
        for _ in range(number):
            whole = b"".join(
                chosen.choice((completed, b"data: {", b"\r\n\r\n", chosen.randbytes(40))) for _ in range(9)
            )
            cuts = sorted(chosen.sample(range(1, len(whole)), 5)) if len(whole) > 6 else []
            streams.parts = [part for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if (part := whole[a:b])]
            streams.is_cut = chosen.random() < 0.5
            body = {"input": "x", "stream": True, "tools": TOOLS, "messages": [{"role": "user", "content": f"{seed}"}]}
            got = b""
            try:
                async with http.stream("POST", f"/{chosen.choice(paths)}", json=body) as answer:
                    async for part in answer.aiter_raw():
                        got += part
            except httpx2.RemoteProtocolError:
                assert streams.is_cut, "an answer that was whole was cut"
            else:
                assert not streams.is_cut, "an answer that was cut looks whole"
            assert got == whole
    server.close()
    await server.wait_closed()


async def test_streams_pass_byte_for_byte(fleet: Fleet) -> None:
    await pass_streams(fleet, 100, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_ten_thousand_streams_pass_byte_for_byte(fleet: Fleet) -> None:
    await pass_streams(fleet, 10_000, seed=2)
