"""Messages between an MCP client and a server: what is recorded of them, and what is added."""

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import orjson
import pytest

from fleetlore import Fleet
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.join.mcp.proxy import McpCalls, server_of
from fleetlore.wire import events
from fleetlore.wire.lore import Pattern
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import GOAL, know_better, know_look_up
from tests.rows import for_each


def call(id: Any, tool: str = "sql", **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


def answer(id: Any, text: str, **fields: Any) -> bytes:
    result = {"content": [{"type": "text", "text": text}], **fields}
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "result": result})


@pytest.fixture
def calls(fleet: Fleet) -> Iterator[McpCalls]:
    with fleet.session("g") as session:
        yield McpCalls(session)


async def test_parallel_calls_are_joined_by_their_id_and_pass_unchanged(calls: McpCalls, recorder: Recorder) -> None:
    sent = [call(1, q=1), call("1", q=2), call(2, q=3), call(3, q=4)]
    assert [calls.from_client(each) for each in sent] == [(each, b"") for each in sent]
    refused = orjson.dumps({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "Unknown tool: sql"}})
    told = [answer("1", "the cars are gone", isError=True), refused, answer(1, "3", structuredContent={"n": 3})]
    assert [calls.from_server(each) for each in told] == told  # nothing is known of such a failure
    calls.close()  # the answer to the third never came
    outcomes = {each[events.ARGUMENTS]["q"]: each for each in recorder.outcomes}
    assert recorder.error(outcomes[2]) == ("_OTHER", "the cars are gone")
    assert recorder.error(outcomes[4]) == ("_OTHER", "Unknown tool: sql")
    assert outcomes[1][events.RESULT] == {"n": 3}
    assert set(outcomes) == {1, 2, 4}


@pytest.mark.parametrize("part", ["verdict_of", "arguments_text", "rewritten", "McpCalls._held", "tool_note"])
async def test_a_defect_in_reading_them_stops_no_message(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, calls: McpCalls, part: str
) -> None:
    monkeypatch.setattr(fleet.guard, "raises", False)
    monkeypatch.setattr(f"fleetlore.join.mcp.proxy.{part}", Mock(side_effect=IndexError))
    listing = b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
    tools = b'{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"sql"}]}}'
    answers = answer(1, "", isError=True, structuredContent={"why": "boom"}), tools
    assert [calls.from_client(each) for each in (call(1), listing)] == [(call(1), b""), (listing, b"")]
    assert [calls.from_server(each) for each in answers] == list(answers)


async def test_a_cancelled_call_and_one_that_asks_for_more_have_not_ended(calls: McpCalls, recorder: Recorder) -> None:
    calls.from_client(call(1))
    calls.from_client(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    calls.from_server(answer(1, "too late"))
    calls.from_client(call(2))
    calls.from_server(b'{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{}}}')
    errors = {"code": -32042, "message": "sign in"}, {"code": 0, "message": "User rejected the tool call"}
    for id, told in enumerate([{"result": None}, *({"error": each} for each in errors)], 3):
        calls.from_client(call(id))
        calls.from_server(orjson.dumps({"jsonrpc": "2.0", "id": id, **told}))
    assert not recorder.outcomes and not calls.under_way


@for_each(
    "told, message",
    ({"result": {"content": "boom", "isError": True}}, "boom"),
    ({"result": {"content": {"type": "text", "text": "boom"}, "isError": True}}, "boom"),
    ({"result": {"content": ["boom"], "isError": True}}, "boom"),
    ({"result": {"content": [{"type": "resource", "resource": {"text": "boom"}}], "isError": True}}, "boom"),
    ({"result": {"structuredContent": {"why": "boom"}, "isError": True}}, '{"why":"boom"}'),
    ({"error": {"code": -32603}}, '{"code":-32603}'),
    ({"error": ["boom"]}, "['boom']"),
)
async def test_an_odd_failure_is_kept(fleet: Fleet, recorder: Recorder, told: dict[str, Any], message: str) -> None:
    know_look_up(fleet, "sql", "tables")
    with fleet.session("g") as session:
        calls = McpCalls(session)
        calls.from_client(call(1))
        sent = {"jsonrpc": "2.0", "id": 1, **told}
        passed = orjson.loads(calls.from_server(orjson.dumps(sent)))
    assert recorder.error(recorder.outcomes[-1])[1] == message
    before, after = (each.get("result", {}).get("content") or [] for each in (sent, passed))
    assert not before or (message in str(after) and "tables" in str(after)), "both the server's words and advice"


@pytest.mark.parametrize("value", [7, [], {"a": 1}, True])
async def test_an_answer_with_texts_of_another_type_passes_unchanged(fleet: Fleet, value: Any) -> None:
    with fleet.session("look around", "look") as session:
        calls = McpCalls(session)
        for method, result in (
            ("initialize", {"instructions": value}),
            ("tools/list", {"tools": [{"description": value}]}),
        ):
            calls.from_client(orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method}))
            message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
            assert calls.from_server(message) == message


async def test_a_batch_is_taken_apart(calls: McpCalls, recorder: Recorder) -> None:
    calls.from_client(b"[" + call(1) + b"," + call(2) + b"]")
    calls.from_server(b"[" + answer(2, "b") + b"," + answer(1, "a") + b"]")
    assert [each[events.RESULT] for each in recorder.outcomes] == ["b", "a"]


ODD_CALL = b'{"id": [1], "method": "tools/call", "params": {}}'
CANCELLED = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
NO_MESSAGES = [b"", b"\n", b"not json", b"[1, 2]", b"null", b'{"id": 1}', ODD_CALL]
NO_MESSAGES += [CANCELLED % id for id in (b"[]", b"{}", b"[9]", b"null", b"9.5")]


@pytest.mark.parametrize("message", NO_MESSAGES)
async def test_what_is_no_message_passes_unchanged(calls: McpCalls, recorder: Recorder, message: bytes) -> None:
    calls.from_client(call(9))
    assert calls.from_client(message) == (message, b"")
    assert calls.from_server(message) == message
    calls.from_server(answer(9, "a"))
    assert [each[events.RESULT] for each in recorder.outcomes] == ["a"]


async def test_a_failure_brings_what_led_others_past_it(fleet: Fleet, calls: McpCalls, recorder: Recorder) -> None:
    failure = failure_of("sql", {"q": "a"}, "", "the cars are gone")
    item = memory_item("r1", tool="sql", pattern=failure.class_, support=3, agents=3, now=("file=cars",))
    led_past = "Add `file=cars` in sql."
    fleet.replica.index.put_item(item)
    told = []
    for _ in range(3):
        calls.from_client(call(1, q="a"))
        result = orjson.loads(calls.from_server(answer(1, "the cars are gone", isError=True)))["result"]
        error, *advice = [part["text"] for part in result["content"]]
        assert error == "the cars are gone" and result["isError"]
        told.append("".join(advice))
    assert told[0].startswith("<fleet-memory ") and led_past in told[0]
    assert not told[1]  # a way out is shown once
    assert "It will fail again" in told[2] and led_past not in told[2]
    calls.from_client(call(2, q="b"))
    calls.from_server(answer(2, "3"))
    assert recorder.outcomes[1][events.ADVICE] == ["r1"]


async def test_a_call_that_is_sure_to_fail_is_answered_once_for_the_server(fleet: Fleet, recorder: Recorder) -> None:
    know_better(fleet, "read", "path")
    with fleet.session("g") as session:
        calls = McpCalls(session)
        asked = call(7, "read", path="/etc/shadow") + b"\n"
        onward, held = calls.from_client(asked)
        assert onward == b"" and held.endswith(b"}\n")
        answered = orjson.loads(held)
        assert answered["id"] == 7 and answered["result"]["isError"]
        said = answered["result"]["content"][0]["text"]
        assert "Use `path=/srv/a`" in said and "Send it again" in said
        assert calls.from_client(asked) == (asked, b"")  # sent again, it is made
        assert calls.under_way == 1
    assert recorder.kinds == ["session.started", "session.ended"]


async def test_a_batch_is_passed_on_whole(fleet: Fleet) -> None:
    know_better(fleet, "read", "path")
    with fleet.session("g") as session:
        batch = b"[" + call(1, "read", path="/etc/shadow") + b"]"
        assert McpCalls(session).from_client(batch) == (batch, b"")


async def test_descriptions_tell_of_their_tools_the_same_each_time(fleet: Fleet) -> None:
    passing = Pattern(
        id="p1", level="class", tenant="default", tool="search", error_class="TimeoutError", template="it is busy",
        failures=9, calls=9, sessions=9, agents=3, transient=True, last_seen=1000.0, first_seen=1000.0,
    )  # fmt: skip
    fleet.replica.index.put_pattern(passing)
    asked = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    tools = [{"name": "search", "description": "Search."}, {"name": "read"}]
    listed = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}})
    with fleet.session("g") as session:
        seen = []
        for _ in range(2):
            calls = McpCalls(session)
            calls.from_client(asked)
            seen.append(calls.from_server(listed))
    search, read = orjson.loads(seen[0])["result"]["tools"]
    assert seen[0] == seen[1] and read == tools[1]
    assert search["description"].startswith("Search.\n\n<fleet-memory ")


async def test_calls_that_are_never_answered_do_not_fill_the_memory(calls: McpCalls) -> None:
    for id in range(2000):
        calls.from_client(call(id))
    assert len(calls._begun) == 1024


@pytest.mark.parametrize(("scope", "kept"), [("public", "private"), ("private", "private"), (None, None)])
async def test_what_is_added_is_for_this_agent_alone(
    fleet: Fleet, calls: McpCalls, scope: str | None, kept: str | None
) -> None:
    """A cache between may give anybody what is public. How long it stays fresh is the server's to say."""
    know_better(fleet, "sql", "q")
    hints = {"ttlMs": 60_000, **({"cacheScope": scope} if scope else {})}
    listed = {"tools": [{"name": "sql"}, {"name": "other"}], **hints}
    calls.from_client(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    told = orjson.loads(calls.from_server(orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": listed})))["result"]
    assert told["ttlMs"] == 60_000 and told.get("cacheScope") == kept and "description" in told["tools"][0]
    unchanged = orjson.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "other"}], **hints}})
    calls.from_client(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}')
    assert calls.from_server(unchanged) == unchanged


@pytest.mark.parametrize("method", [b"initialize", b"server/discover"])
@pytest.mark.parametrize("odd", [b"18446744073709551617", b"1.10", b'"\\ud83d"', b"NaN", b'"a\\/b"'])
async def test_instructions_tell_of_the_task_and_other_values_are_kept(fleet: Fleet, method: bytes, odd: bytes) -> None:
    with fleet.session(GOAL, "look") as session:
        calls = McpCalls(session)
        calls.from_client(b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":{}}' % (odd, method))
        given = b'{"jsonrpc":"2.0","id":%b,"result":{"instructions":"Be kind.","_meta":{"odd":%b}}}\n' % (odd, odd)
        told = calls.from_server(given)
    added = json.dumps(f"Be kind.\n\n{session.introduction}\n\n<fleet-memory ")[:-1].encode()
    assert added in told and b"Look into /srv" in told and told.count(odd) == 2 and told.endswith(b"}\n")


async def test_an_error_that_half_a_surrogate_pair_ends_is_recorded(calls: McpCalls, recorder: Recorder) -> None:
    calls.from_client(call(1))
    given = answer(1, "no rule HALF", isError=True).replace(b"HALF", b"\\ud83d")
    assert calls.from_server(given) == given
    assert [recorder.error(each) for each in recorder.outcomes] == [("_OTHER", "no rule \ufffd")]


async def test_a_tool_is_known_by_its_server_and_shown_as_the_client_names_it(fleet: Fleet, recorder: Recorder) -> None:
    failure = failure_of("mcp__shop__sql", {"q": "a"}, "", "the cars are gone")
    known = memory_item("r1", tool="mcp__shop__sql", pattern=failure.class_, support=3, agents=3, now=("file=cars",))
    fleet.replica.index.put_item(known)
    for server in ("evil/shop", "shop", "shop of others", "shop.example.com/github/"):
        with fleet.session("g") as session:
            calls = McpCalls(session, server)
            calls.from_client(call(1, q="a"))
            text = calls.from_server(answer(1, "the cars are gone", isError=True)).decode()
        assert ("Add `file=cars` in sql." in text) == (server == "shop")
    assert [each[events.TOOL] for each in recorder.outcomes] == [
        "mcp__evil_shop__sql",
        "mcp__shop__sql",
        "mcp__shop_of_others__sql",
        "mcp__shop.example.com_github__sql",
    ]


@for_each(
    "command, server",
    (["mcp-server-time", "--local-timezone", "UTC"], "mcp-server-time"),
    (["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv"], "server-filesystem"),
    (["uv", "tool", "run", "mcp-server-git"], "mcp-server-git"),
    (["docker", "run", "-i", "--rm", "-e", "TOKEN=abc", "mcp/time"], "time"),
    (["/usr/bin/python3.12", "-m", "mcp_server_time"], "mcp_server_time"),
    (["python", "/srv/weather.py"], "weather"),
    (["env", "KEY=secret", "node", "dist/index.js"], "index"),
    (["node"], "node"),
)
def test_a_server_is_named_by_the_command_that_starts_it(command: list[str], server: str) -> None:
    assert server_of(command) == server
